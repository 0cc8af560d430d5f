"""A conversation as plain lines, whoever tells of it: a request on the wire, an answer, or the recorded log.

A line is `(who, what)`: the user's and the model's text, a call with its arguments, a tool's result. What clients change by
themselves between two calls is no part of it: ids, cache marks, reasoning, the form of a text, goose's moving note.
"""
import json, re

from answers import CHAT, MESSAGES, RESPONSES

# goose says the time and the state of its window anew in every request, each time elsewhere.
MOVING = re.compile(r"\s*<info-msg>.*?</info-msg>\s*", re.S)


def of_request(form, body):
    """The history a request carries."""
    return tidy({CHAT: chat, MESSAGES: messages, RESPONSES: responses}[form](body))


def of_answer(say):
    """What the model says."""
    lines = [("model", say.text)] if say.text else []
    return tidy(lines + [("call", call_line(item.name, item.arguments)) for item in say.calls])


def of_facts(facts):
    """What was recorded."""
    return tidy(line for fact in facts for line in of_fact(fact))


def tidy(lines):
    """Joins what one speaker says in several pieces: where clients cut is their own business."""
    joined = []
    for who, what in lines:
        what = MOVING.sub("", what) if who == "user" else what
        what = what.strip()
        if not what:
            continue
        if who in ("user", "model") and joined and joined[-1][0] == who:
            joined[-1] = (who, joined[-1][1] + "\n" + what)
        else:
            joined.append((who, what))
    return joined


def call_line(name, arguments):
    """A call, however its arguments were written."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            pass
    return f"{name} {json.dumps(arguments, sort_keys=True)}"


def texts(content):
    """The texts of a message's content, as string or in blocks."""
    if isinstance(content, str):
        return [content]
    return [block.get("text") or "" for block in content or [] if isinstance(block, dict)]


def chat(body):
    for message in body.get("messages") or []:
        role = message["role"]
        if role == "tool":
            yield "result", "\n".join(texts(message.get("content")))
        elif role in ("user", "assistant"):
            for text in texts(message.get("content")):
                yield ("user" if role == "user" else "model"), text
            for item in message.get("tool_calls") or []:
                yield "call", call_line(item["function"]["name"], item["function"]["arguments"])


def messages(body):
    for message in body.get("messages") or []:
        who = {"user": "user", "assistant": "model"}.get(message["role"])
        content = message.get("content")
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content or []:
            if block["type"] == "tool_use":
                yield "call", call_line(block["name"], block["input"])
            elif block["type"] == "tool_result":
                yield "result", "\n".join(texts(block.get("content")))
            elif block["type"] == "text" and who:
                yield who, block["text"]


def responses(body):
    given = body.get("input") or []
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        kind = item.get("type", "message")
        if kind == "function_call":
            yield "call", call_line(item["name"], item["arguments"])
        elif kind == "custom_tool_call":
            yield "call", call_line(item["name"], item["input"])
        elif kind.endswith("_output"):
            yield "result", "\n".join(texts(item.get("output")))
        elif kind == "message" and item.get("role") in ("user", "assistant"):
            for text in texts(item.get("content")):
                yield ("user" if item["role"] == "user" else "model"), text


def of_fact(fact):
    """An event of the log, as `epitome export --format jsonl` writes it."""
    kind = fact["kind"]
    if kind == "user_said" or kind == "instructed" and fact["what"] == "project":
        yield from (("user", part["text"]) for part in fact["parts"] if part["type"] == "text")
    elif kind == "assistant_said":
        for part in fact["parts"]:
            if part["type"] == "text":
                yield "model", part["text"]
            elif part["type"] == "tool_call":
                yield "call", call_line(part["name"], part["arguments"])
    elif kind == "tool_returned":
        for result in fact["results"]:
            yield "result", "\n".join(part.get("text", "") for part in result["parts"])
        yield from (("user", part["text"]) for part in fact.get("parts", []) if part["type"] == "text")
