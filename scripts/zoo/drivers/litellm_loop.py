"""LiteLLM's SDK: a loop of calls and results by hand, one function for all formats."""
import json

import litellm

import zoo

litellm.telemetry = False
schema = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
tools = [{"type": "function", "function": {"name": "read_part", "description": "Read one part of the notes.", "parameters": schema}}]
prefix, base = ("anthropic", zoo.BASE) if zoo.FORM == "messages" else ("openai", zoo.OPENAI)
marks = {}
if zoo.FORM == "messages":
    marks = {"cache_control_injection_points": [{"location": "message", "role": "system"}, {"location": "message", "index": -1}]}
history = [{"role": "system", "content": zoo.SYSTEM}]
for prompt in zoo.PROMPTS:
    history.append({"role": "user", "content": prompt})
    while True:
        answer = litellm.completion(
            model=f"{prefix}/{zoo.MODEL}", api_base=base, api_key=zoo.KEY, messages=history, tools=tools, max_tokens=zoo.ANSWER, **marks
        )
        message = answer.choices[0].message
        history.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or []:
            text = zoo.read_part(json.loads(call.function.arguments)["number"])
            history.append({"role": "tool", "tool_call_id": call.id, "content": text})
        if not message.tool_calls:
            break
