// The official OpenAI SDK for JavaScript: every case once, a line of JSON for each. BASE is the address before `/v1`.
import OpenAI from "openai";

import { IMAGE, IMAGE_URL, SYSTEM, check, failing, run } from "./sdk_cases.mjs";

const BASE = process.argv[2];
const model = process.env.MODEL ?? "test-model";
const tool = {
  name: "weather",
  description: "Tells the weather of a city.",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};
const chatTools = [{ type: "function", function: tool }];
const responsesTools = [{ type: "function", ...tool, strict: false }];
const ask = [
  { role: "system", content: SYSTEM },
  { role: "user", content: "Name four things." },
];

const client = (name) =>
  new OpenAI({ baseURL: `${BASE}/v1`, apiKey: "sk-dummy", maxRetries: 1, defaultHeaders: { "x-case": name } });

async function chatPlain(api) {
  const answer = await api.chat.completions.create({ model, messages: ask });
  check(answer.choices[0].finish_reason, "stop");
  check(answer.usage.completion_tokens, 20);
  return answer.choices[0].message.content;
}

async function chatStream(api) {
  const options = { model, messages: ask, stream: true, stream_options: { include_usage: true } };
  let text = "";
  let usage;
  for await (const chunk of await api.chat.completions.create(options)) {
    text += chunk.choices[0]?.delta?.content ?? "";
    usage = chunk.usage ?? usage;
  }
  check(usage.completion_tokens, 20);
  return text;
}

async function chatStreamHelper(api) {
  const stream = api.chat.completions.stream({ model, messages: ask });
  let text = "";
  stream.on("content", (piece) => (text += piece));
  const whole = (await stream.finalChatCompletion()).choices[0].message.content;
  check(text, whole);
  return whole;
}

async function chatUsesTools(api) {
  const messages = [...ask];
  const { message } = (await api.chat.completions.create({ model, messages, tools: chatTools })).choices[0];
  messages.push(message);
  for (const call of message.tool_calls) {
    const { city } = JSON.parse(call.function.arguments);
    messages.push({ role: "tool", tool_call_id: call.id, content: `21 degrees in ${city}` });
  }
  const last = await api.chat.completions.create({ model, messages, tools: chatTools });
  return [message.tool_calls.map((call) => call.function.arguments), last.choices[0].message.content];
}

async function chatStreamsTools(api) {
  const stream = api.chat.completions.stream({ model, messages: ask, tools: chatTools });
  const { message } = (await stream.finalChatCompletion()).choices[0];
  return message.tool_calls.map((call) => call.function.arguments);
}

const chatImage = (url) => async (api) => {
  const content = [{ type: "text", text: "What is this?" }, { type: "image_url", image_url: { url } }];
  const answer = await api.chat.completions.create({ model, messages: [{ role: "user", content }] });
  return answer.choices[0].message.content;
};

const chatError = (api) => failing(() => api.chat.completions.create({ model, messages: ask }));

async function chatCancel(api) {
  const stream = await api.chat.completions.create({ model, messages: ask, stream: true });
  const pieces = [];
  for await (const chunk of stream) {
    pieces.push(chunk.choices[0].delta.content ?? "");
    if (pieces.length === 3) stream.controller.abort();
    if (pieces.length >= 3) break;
  }
  return pieces;
}

async function responsesPlain(api) {
  const answer = await api.responses.create({ model, instructions: SYSTEM, input: "Name four things." });
  check(answer.usage.output_tokens, 20);
  return answer.output_text;
}

async function responsesStream(api) {
  const stream = api.responses.stream({ model, input: "Name four things." });
  let text = "";
  stream.on("response.output_text.delta", (event) => (text += event.delta));
  const whole = (await stream.finalResponse()).output_text;
  check(text, whole);
  return whole;
}

async function responsesUsesTools(api) {
  const input = [{ role: "user", content: "How is the weather?" }];
  const answer = await api.responses.create({ model, input, tools: responsesTools });
  input.push(...answer.output);
  const calls = answer.output.filter((item) => item.type === "function_call");
  for (const call of calls) {
    const { city } = JSON.parse(call.arguments);
    input.push({ type: "function_call_output", call_id: call.call_id, output: `21 degrees in ${city}` });
  }
  const last = await api.responses.create({ model, input, tools: responsesTools });
  return [calls.map((call) => call.arguments), last.output_text];
}

async function responsesPrevious(api) {
  const first = await api.responses.create({ model, input: "Name four things." });
  const second = await api.responses.create({ model, input: "And a fifth.", previous_response_id: first.id });
  check(second.previous_response_id, first.id);
  return second.output_text;
}

const responsesImage = (url) => async (api) => {
  const content = [{ type: "input_text", text: "What is this?" }, { type: "input_image", image_url: url }];
  return (await api.responses.create({ model, input: [{ role: "user", content }] })).output_text;
};

async function responsesCancel(api) {
  const stream = await api.responses.create({ model, input: "Name four things.", stream: true });
  const pieces = [];
  for await (const event of stream) {
    pieces.push(event.type);
    if (pieces.length === 5) break;
  }
  return pieces;
}

async function models(api) {
  const ids = [];
  for await (const one of api.models.list()) ids.push(one.id);
  return ids;
}

const real = { model, messages: ask, max_tokens: 24, temperature: 0 };

async function realPlain(api) {
  return (await api.chat.completions.create(real)).choices[0].message.content;
}

async function realStream(api) {
  let text = "";
  for await (const chunk of await api.chat.completions.create({ ...real, stream: true })) {
    text += chunk.choices[0]?.delta?.content ?? "";
  }
  return text;
}

await run(
  {
    "chat plain": chatPlain,
    "chat stream": chatStream,
    "chat stream helper": chatStreamHelper,
    "chat tools": chatUsesTools,
    "chat tools stream": chatStreamsTools,
    "chat parallel tools": chatUsesTools,
    "chat parallel tools stream": chatStreamsTools,
    "chat image base64": chatImage(`data:image/png;base64,${IMAGE}`),
    "chat image url": chatImage(IMAGE_URL),
    "chat error 400": chatError,
    "chat error 401": chatError,
    "chat error 429 once": chatPlain,
    "chat error 500": chatError,
    "chat error 529": chatError,
    "chat cancel": chatCancel,
    "responses plain": responsesPlain,
    "responses stream": responsesStream,
    "responses tools": responsesUsesTools,
    "responses parallel tools": responsesUsesTools,
    "responses previous id": responsesPrevious,
    "responses image base64": responsesImage(`data:image/png;base64,${IMAGE}`),
    "responses image url": responsesImage(IMAGE_URL),
    "responses cancel": responsesCancel,
    models,
    "real plain": realPlain,
    "real stream": realStream,
  },
  client,
);
