// Vercel's AI SDK: streamed text with a tool, each prompt given the messages of those before it.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { stepCountIs, streamText, tool } from "ai";
import fs from "node:fs";
import { z } from "zod";

const { ZOO_BASE: base, ZOO_FORM: form, ZOO_MODEL: name, ZOO_SYSTEM: system, ZOO_ANSWER: answer } = process.env;
const settings = { baseURL: `${base}/v1`, apiKey: "sk-dummy", name: "gateway" };
const model = {
  chat: () => createOpenAICompatible({ ...settings, includeUsage: true })(name),
  responses: () => createOpenAI(settings).responses(name),
  messages: () => createAnthropic(settings)(name),
}[form]();
const readPart = tool({
  description: "Read one part of the notes.",
  inputSchema: z.object({ number: z.number().int() }),
  execute: async ({ number }) => {
    const text = fs.readFileSync(`notes/part-${number}.md`, "utf8");
    fs.writeFileSync(`read-${number}`, "");
    return text;
  },
});
const mark = { anthropic: { cacheControl: { type: "ephemeral" } } };
const told = { role: "system", content: system, providerOptions: mark };
// Anthropic caches what is marked: the instructions, and the newest message.
const marked = (messages) => messages.map((one, at) => (at === messages.length - 1 ? { ...one, providerOptions: mark } : one));
const options = form === "responses" ? { openai: { store: false } } : {};
let history = [];
for (const prompt of JSON.parse(fs.readFileSync(process.env.ZOO_PROMPTS, "utf8"))) {
  history.push({ role: "user", content: prompt });
  const result = streamText({
    model,
    system: form === "messages" ? told : system,
    messages: history,
    tools: { read_part: readPart },
    maxOutputTokens: Number(answer),
    stopWhen: stepCountIs(200),
    providerOptions: options,
    prepareStep: ({ messages }) => (form === "messages" ? { messages: marked(messages) } : {}),
    onError: ({ error }) => {
      console.error(error);
      process.exitCode = 1;
    },
  });
  await result.consumeStream();
  history = [...history, ...(await result.response).messages];
}
