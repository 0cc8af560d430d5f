// What the cases of every SDK share: an image, a system prompt, and how a case is run and told of.

// A PNG of one pixel.
export const IMAGE =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
export const IMAGE_URL = "https://example.invalid/picture.png";
export const SYSTEM = "You are terse. Ünïcode stays: \u2028 \u{1f642}";

// Runs the cases that were asked for, or all but those that need a real model, and prints what each gave back.
export async function run(cases, client) {
  const asked = process.argv.slice(3);
  const usual = Object.keys(cases).filter((name) => !name.startsWith("real "));
  for (const name of asked.length ? asked : usual) {
    let line = { case: name };
    try {
      line.value = await cases[name](client(name));
    } catch (problem) {
      line.problem = String(problem?.stack ?? problem);
    }
    console.log(JSON.stringify(line));
  }
}

export function check(value, expect) {
  if (JSON.stringify(value) !== JSON.stringify(expect)) {
    throw new Error(`${JSON.stringify(value)} is not ${JSON.stringify(expect)}`);
  }
}

// What an error of the provider looks like to the caller.
export async function failing(call) {
  try {
    await call();
  } catch (problem) {
    return [problem.status, problem.constructor.name, problem.error, problem.headers?.get?.("x-should-stay") ?? null];
  }
  return "no error";
}
