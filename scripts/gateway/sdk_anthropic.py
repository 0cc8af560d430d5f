"""The official Anthropic SDK for Python: every case once, a line of JSON for each. BASE is the address before `/v1`."""
import sys

import anthropic

from sdk_cases import IMAGE, IMAGE_URL, SYSTEM, check, run

BASE = sys.argv[1]
COMMON = {"model": "claude-sonnet-4-5", "max_tokens": 500}
TOOLS = [
    {
        "name": "weather",
        "description": "Tells the weather of a city.",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }
]
ASK = [{"role": "user", "content": "Name four things."}]


def client(case):
    return anthropic.Anthropic(base_url=BASE, api_key="sk-ant-dummy", max_retries=1, default_headers={"x-case": case})


def plain(api):
    answer = api.messages.create(**COMMON, system=SYSTEM, messages=ASK)
    check(answer.stop_reason, "end_turn")
    check(answer.usage.output_tokens, 20)
    return answer.content[0].text


def stream(api):
    events = list(api.messages.create(**COMMON, messages=ASK, stream=True))
    check(events[-1].type, "message_stop")
    return "".join(event.delta.text for event in events if event.type == "content_block_delta")


def stream_helper(api):
    with api.messages.stream(**COMMON, messages=ASK) as helper:
        pieces = list(helper.text_stream)
        whole = helper.get_final_message().content[0].text
    check("".join(pieces), whole)
    return whole


def tools(api):
    messages = list(ASK)
    answer = api.messages.create(**COMMON, messages=messages, tools=TOOLS)
    calls = [block for block in answer.content if block.type == "tool_use"]
    messages.append({"role": "assistant", "content": answer.content})
    results = [
        {"type": "tool_result", "tool_use_id": call.id, "content": f"21 degrees in {call.input['city']}"} for call in calls
    ]
    messages.append({"role": "user", "content": results})
    last = api.messages.create(**COMMON, messages=messages, tools=TOOLS)
    return [[call.input for call in calls], last.content[0].text]


def tools_stream(api):
    with api.messages.stream(**COMMON, messages=ASK, tools=TOOLS) as helper:
        message = helper.get_final_message()
    check(message.stop_reason, "tool_use")
    return [block.input for block in message.content if block.type == "tool_use"]


def image(source):
    def looks(api):
        content = [{"type": "image", "source": source}, {"type": "text", "text": "What is this?"}]
        return api.messages.create(**COMMON, messages=[{"role": "user", "content": content}]).content[0].text

    return looks


def error(kind):
    def fails(api):
        try:
            api.messages.create(**COMMON, messages=ASK)
        except kind as problem:
            return [problem.status_code, problem.body, problem.response.headers.get("x-should-stay")]
        return "no error"

    return fails


def cancel(api):
    pieces = []
    with api.messages.create(**COMMON, messages=ASK, stream=True) as events:
        for event in events:
            pieces.append(event.type)
            if len(pieces) == 5:
                break
    return pieces


def count_tokens(api):
    return api.messages.count_tokens(model=COMMON["model"], messages=ASK).input_tokens


def models(api):
    return [model.id for model in api.models.list()]


CASES = {
    "plain": plain,
    "stream": stream,
    "stream helper": stream_helper,
    "tools": tools,
    "tools stream": tools_stream,
    "parallel tools": tools,
    "parallel tools stream": tools_stream,
    "image base64": image({"type": "base64", "media_type": "image/png", "data": IMAGE}),
    "image url": image({"type": "url", "url": IMAGE_URL}),
    "error 400": error(anthropic.BadRequestError),
    "error 401": error(anthropic.AuthenticationError),
    "error 429 once": plain,
    "error 500": error(anthropic.InternalServerError),
    "error 529": error(anthropic.APIStatusError),
    "cancel": cancel,
    "count tokens": count_tokens,
    "models": models,
}

run(CASES, client)
