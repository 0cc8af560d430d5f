// The official Anthropic SDK for JavaScript: every case once, a line of JSON for each. BASE is the address before `/v1`.
import Anthropic from "@anthropic-ai/sdk";

import { IMAGE, IMAGE_URL, SYSTEM, check, failing, run } from "./sdk_cases.mjs";

const BASE = process.argv[2];
const common = { model: "claude-sonnet-4-5", max_tokens: 500 };
const tools = [
  {
    name: "weather",
    description: "Tells the weather of a city.",
    input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
];
const ask = [{ role: "user", content: "Name four things." }];

const client = (name) =>
  new Anthropic({ baseURL: BASE, apiKey: "sk-ant-dummy", maxRetries: 1, defaultHeaders: { "x-case": name } });

async function plain(api) {
  const answer = await api.messages.create({ ...common, system: SYSTEM, messages: ask });
  check(answer.stop_reason, "end_turn");
  check(answer.usage.output_tokens, 20);
  return answer.content[0].text;
}

async function stream(api) {
  let text = "";
  let last;
  for await (const event of await api.messages.create({ ...common, messages: ask, stream: true })) {
    if (event.type === "content_block_delta") text += event.delta.text;
    last = event.type;
  }
  check(last, "message_stop");
  return text;
}

async function streamHelper(api) {
  const helper = api.messages.stream({ ...common, messages: ask });
  let text = "";
  helper.on("text", (piece) => (text += piece));
  const whole = (await helper.finalMessage()).content[0].text;
  check(text, whole);
  return whole;
}

async function usesTools(api) {
  const messages = [...ask];
  const answer = await api.messages.create({ ...common, messages, tools });
  const calls = answer.content.filter((block) => block.type === "tool_use");
  messages.push({ role: "assistant", content: answer.content });
  const content = calls.map((call) => ({
    type: "tool_result",
    tool_use_id: call.id,
    content: `21 degrees in ${call.input.city}`,
  }));
  messages.push({ role: "user", content });
  const last = await api.messages.create({ ...common, messages, tools });
  return [calls.map((call) => call.input), last.content[0].text];
}

async function streamsTools(api) {
  const message = await api.messages.stream({ ...common, messages: ask, tools }).finalMessage();
  check(message.stop_reason, "tool_use");
  return message.content.filter((block) => block.type === "tool_use").map((block) => block.input);
}

const image = (source) => async (api) => {
  const content = [{ type: "image", source }, { type: "text", text: "What is this?" }];
  return (await api.messages.create({ ...common, messages: [{ role: "user", content }] })).content[0].text;
};

const error = (api) => failing(() => api.messages.create({ ...common, messages: ask }));

async function cancel(api) {
  const pieces = [];
  for await (const event of await api.messages.create({ ...common, messages: ask, stream: true })) {
    pieces.push(event.type);
    if (pieces.length === 5) break;
  }
  return pieces;
}

async function countTokens(api) {
  return (await api.messages.countTokens({ model: common.model, messages: ask })).input_tokens;
}

async function models(api) {
  const ids = [];
  for await (const one of api.models.list()) ids.push(one.id);
  return ids;
}

await run(
  {
    plain,
    stream,
    "stream helper": streamHelper,
    tools: usesTools,
    "tools stream": streamsTools,
    "parallel tools": usesTools,
    "parallel tools stream": streamsTools,
    "image base64": image({ type: "base64", media_type: "image/png", data: IMAGE }),
    "image url": image({ type: "url", url: IMAGE_URL }),
    "error 400": error,
    "error 401": error,
    "error 429 once": plain,
    "error 500": error,
    "error 529": error,
    cancel,
    "count tokens": countTokens,
    models,
  },
  client,
);
