"""OpenAI's own SDK: a loop of calls and results by hand, for what stands between it and the provider to be tried."""
import json

from openai import OpenAI

import zoo

client = OpenAI(api_key=zoo.KEY, base_url=zoo.OPENAI, timeout=120)
schema = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
tools = [{"type": "function", "function": {"name": "read_part", "description": "Read one part of the notes.", "parameters": schema}}]
history = [{"role": "system", "content": zoo.SYSTEM}]
for prompt in zoo.PROMPTS:
    history.append({"role": "user", "content": prompt})
    while True:
        answer = client.chat.completions.create(model=zoo.MODEL, messages=history, tools=tools, max_tokens=zoo.ANSWER)
        message = answer.choices[0].message
        history.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or []:
            text = zoo.read_part(json.loads(call.function.arguments)["number"])
            history.append({"role": "tool", "tool_call_id": call.id, "content": text})
        if not message.tool_calls:
            break
