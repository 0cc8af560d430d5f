"""The official OpenAI SDK for Python: every case once, a line of JSON for each. BASE is the address before `/v1`."""
import json, os, sys

import openai

from sdk_cases import IMAGE, IMAGE_URL, SYSTEM, check, run

BASE = sys.argv[1]
MODEL = os.environ.get("MODEL", "test-model")
TOOL = {
    "name": "weather",
    "description": "Tells the weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CHAT_TOOLS = [{"type": "function", "function": TOOL}]
RESPONSES_TOOLS = [{"type": "function", **TOOL, "strict": False}]
ASK = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Name four things."}]


def client(case):
    return openai.OpenAI(base_url=f"{BASE}/v1", api_key="sk-dummy", max_retries=1, default_headers={"x-case": case})


def chat_plain(api):
    answer = api.chat.completions.create(model=MODEL, messages=ASK)
    check(answer.choices[0].finish_reason, "stop")
    check(answer.usage.completion_tokens, 20)
    return answer.choices[0].message.content


def chat_stream(api):
    options = {"include_usage": True}
    chunks = list(api.chat.completions.create(model=MODEL, messages=ASK, stream=True, stream_options=options))
    check(chunks[-1].usage.completion_tokens, 20)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def chat_stream_helper(api):
    with api.chat.completions.stream(model=MODEL, messages=ASK) as stream:
        pieces = [event.delta for event in stream if event.type == "content.delta"]
        whole = stream.get_final_completion().choices[0].message.content
    check("".join(pieces), whole)
    return whole


def chat_tools(api):
    messages = list(ASK)
    message = api.chat.completions.create(model=MODEL, messages=messages, tools=CHAT_TOOLS).choices[0].message
    messages.append(message)
    for call in message.tool_calls:
        city = json.loads(call.function.arguments)["city"]
        messages.append({"role": "tool", "tool_call_id": call.id, "content": f"21 degrees in {city}"})
    answer = api.chat.completions.create(model=MODEL, messages=messages, tools=CHAT_TOOLS)
    return [[call.function.arguments for call in message.tool_calls], answer.choices[0].message.content]


def chat_tools_stream(api):
    with api.chat.completions.stream(model=MODEL, messages=ASK, tools=CHAT_TOOLS) as stream:
        message = stream.get_final_completion().choices[0].message
    return [call.function.arguments for call in message.tool_calls]


def chat_image(url):
    def image(api):
        content = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": url}}]
        answer = api.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": content}])
        return answer.choices[0].message.content

    return image


def chat_error(error):
    def fails(api):
        try:
            api.chat.completions.create(model=MODEL, messages=ASK)
        except error as problem:
            return [problem.status_code, problem.body, problem.response.headers.get("x-should-stay")]
        return "no error"

    return fails


def chat_cancel(api):
    pieces = []
    with api.chat.completions.create(model=MODEL, messages=ASK, stream=True) as stream:
        for chunk in stream:
            pieces.append(chunk.choices[0].delta.content or "")
            if len(pieces) == 3:
                break
    return pieces


def responses_plain(api):
    answer = api.responses.create(model=MODEL, instructions=SYSTEM, input="Name four things.")
    check(answer.usage.output_tokens, 20)
    return answer.output_text


def responses_stream(api):
    with api.responses.stream(model=MODEL, input="Name four things.") as stream:
        pieces = [event.delta for event in stream if event.type == "response.output_text.delta"]
        whole = stream.get_final_response().output_text
    check("".join(pieces), whole)
    return whole


def responses_tools(api):
    history = [{"role": "user", "content": "How is the weather?"}]
    answer = api.responses.create(model=MODEL, input=history, tools=RESPONSES_TOOLS)
    history += answer.output
    calls = [item for item in answer.output if item.type == "function_call"]
    for call in calls:
        city = json.loads(call.arguments)["city"]
        history.append({"type": "function_call_output", "call_id": call.call_id, "output": f"21 degrees in {city}"})
    last = api.responses.create(model=MODEL, input=history, tools=RESPONSES_TOOLS)
    return [[call.arguments for call in calls], last.output_text]


def responses_previous(api):
    first = api.responses.create(model=MODEL, input="Name four things.")
    second = api.responses.create(model=MODEL, input="And a fifth.", previous_response_id=first.id)
    check(second.previous_response_id, first.id)
    return second.output_text


def responses_image(url):
    def image(api):
        content = [{"type": "input_text", "text": "What is this?"}, {"type": "input_image", "image_url": url}]
        return api.responses.create(model=MODEL, input=[{"role": "user", "content": content}]).output_text

    return image


def responses_cancel(api):
    pieces = []
    with api.responses.create(model=MODEL, input="Name four things.", stream=True) as stream:
        for event in stream:
            pieces.append(event.type)
            if len(pieces) == 5:
                break
    return pieces


def models(api):
    return [model.id for model in api.models.list()]


REAL = {"model": MODEL, "messages": ASK, "max_tokens": 24, "temperature": 0}


def real_plain(api):
    return api.chat.completions.create(**REAL).choices[0].message.content


def real_stream(api):
    chunks = list(api.chat.completions.create(**REAL, stream=True))
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


CASES = {
    "chat plain": chat_plain,
    "chat stream": chat_stream,
    "chat stream helper": chat_stream_helper,
    "chat tools": chat_tools,
    "chat tools stream": chat_tools_stream,
    "chat parallel tools": chat_tools,
    "chat parallel tools stream": chat_tools_stream,
    "chat image base64": chat_image(f"data:image/png;base64,{IMAGE}"),
    "chat image url": chat_image(IMAGE_URL),
    "chat error 400": chat_error(openai.BadRequestError),
    "chat error 401": chat_error(openai.AuthenticationError),
    "chat error 429 once": chat_plain,
    "chat error 500": chat_error(openai.InternalServerError),
    "chat error 529": chat_error(openai.InternalServerError),
    "chat cancel": chat_cancel,
    "responses plain": responses_plain,
    "responses stream": responses_stream,
    "responses tools": responses_tools,
    "responses parallel tools": responses_tools,
    "responses previous id": responses_previous,
    "responses image base64": responses_image(f"data:image/png;base64,{IMAGE}"),
    "responses image url": responses_image(IMAGE_URL),
    "responses cancel": responses_cancel,
    "models": models,
    "real plain": real_plain,
    "real stream": real_stream,
}

run(CASES, client)
