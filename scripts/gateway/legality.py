"""What a provider refuses about a request by itself, in the provider's words: each finding is a message, and none is fine.

This is written from what the providers say and not from what the gateway checks: two ideas of legality that were learned apart
find each other's mistakes.
"""
from answers import CHAT, MESSAGES, RESPONSES

MARKS = 4


def breach(form, body):
    """The first thing that the provider would refuse, or None."""
    return next({CHAT: chat, MESSAGES: messages, RESPONSES: responses}[form](body), None)


# Chat Completions


def chat(body):
    said = body.get("messages") or []
    if not said:
        yield "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead."
    waiting, where = [], 0
    for index, message in enumerate(said):
        role = message.get("role")
        if role not in ("system", "developer", "user", "assistant", "tool"):
            yield f"Invalid value: '{role}' in messages[{index}].role."
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                yield (
                    f"Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls' "
                    f"(messages[{index}])."
                )
            else:
                waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            yield unanswered(waiting, where)
        waiting, where = [call["id"] for call in message.get("tool_calls") or []], index
        if len(set(waiting)) < len(waiting):
            yield f"Duplicate value for 'tool_call_id' in messages[{index}]."
        if role == "assistant" and not message.get("content") and not waiting:
            yield f"Invalid value for 'content': expected a string, got null in messages[{index}]."
        if message.get("tool_calls") == []:
            yield f"Invalid 'messages[{index}].tool_calls': empty array."
    if waiting:
        yield unanswered(waiting, where)


def unanswered(waiting, where):
    return (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following "
        f"tool_call_ids did not have response messages: {', '.join(waiting)} (messages[{where}])"
    )


# Messages


def messages(body):
    said = body.get("messages") or []
    if not said:
        yield "messages: at least one message is required"
        return
    if said[0].get("role") != "user":
        yield 'messages: first message must use the "user" role'
    yield from marks(body)
    asked, said = set(), joined(said)
    for index, message in enumerate(said):
        role = message.get("role")
        if role not in ("user", "assistant", "system"):
            yield f"messages.{index}.role: Input should be 'user' or 'assistant'"
        blocks = blocks_of(message)
        yield from contents(index, message, blocks, index == len(said) - 1)
        calls = [block["id"] for block in blocks if block.get("type") == "tool_use"]
        if len(set(calls)) < len(calls) or asked & set(calls):
            yield f"messages.{index}: `tool_use` ids must be unique"
        asked |= set(calls)
        follows = blocks_of(said[index + 1]) if index + 1 < len(said) else []
        yield from answered(index, calls, follows)
        yield from unasked(index, blocks, blocks_of(said[index - 1]) if index else [])


def joined(said):
    """Messages of one role in a row are taken as one: goose sends such."""
    joined = []
    for message in said:
        if joined and joined[-1].get("role") == message.get("role"):
            joined[-1] = {**message, "content": blocks_of(joined[-1]) + blocks_of(message)}
        else:
            joined.append(message)
    return joined


def blocks_of(message):
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else content or []


def contents(index, message, blocks, is_last):
    if not blocks and not (is_last and message.get("role") == "assistant"):
        yield f"messages.{index}: all messages must have non-empty content except for the optional final assistant message"
    for place, block in enumerate(blocks):
        if block.get("type") == "text" and not block.get("text"):
            yield "messages: text content blocks must be non-empty"
        elif block.get("type") == "text" and not block["text"].strip():
            yield "messages: text content blocks must contain non-whitespace text"
    if is_last and message.get("role") == "assistant" and blocks and blocks[-1].get("type") == "text":
        if blocks[-1]["text"] != blocks[-1]["text"].rstrip():
            yield "messages: final assistant content cannot end with trailing whitespace"


def answered(index, calls, follows):
    """Results come at once, and before anything else in their message."""
    first = 0
    while first < len(follows) and follows[first].get("type") == "tool_result":
        first += 1
    given = {block.get("tool_use_id") for block in follows[:first]}
    missing = [call for call in calls if call not in given]
    if missing:
        yield (
            f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(missing)}. Each "
            "`tool_use` block must have a corresponding `tool_result` block in the next message."
        )


def unasked(index, blocks, before):
    calls = [block["id"] for block in before if block.get("type") == "tool_use"]
    for place, block in enumerate(blocks):
        if block.get("type") != "tool_result":
            continue
        if block.get("tool_use_id") not in calls:
            yield (
                f"messages.{index}.content.{place}: unexpected `tool_use_id` found in `tool_result` blocks: {block.get('tool_use_id')}. "
                "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        else:
            calls.remove(block["tool_use_id"])


def marks(body):
    found = sum(count_marks(body.get(key)) for key in ("tools", "system", "messages"))
    if found > MARKS:
        yield f"A maximum of {MARKS} blocks with cache_control may be provided. Found {found}."


def count_marks(value):
    if isinstance(value, list):
        return sum(map(count_marks, value))
    if isinstance(value, dict):
        return bool(value.get("cache_control")) + sum(map(count_marks, value.values()))
    return 0


# Responses


def responses(body):
    given = body.get("input") or []
    if isinstance(given, str):
        return
    if not given:
        yield "Invalid 'input': empty array."
    calls, outputs, ids = [], [], set()
    for index, item in enumerate(given):
        kind = item.get("type", "message")
        if item.get("id") in ids and kind != "item_reference":
            yield f"Duplicate item found with id {item['id']}. Remove duplicate items from your input and try again."
        ids |= {item.get("id")} - {None}
        if kind.endswith("_call") and item.get("call_id"):
            if item["call_id"] in calls:
                yield f"Duplicate call_id {item['call_id']} in input[{index}]."
            calls.append(item["call_id"])
        elif kind.endswith("_call_output"):
            # What is before this request is known only to the provider.
            if item["call_id"] not in calls and not body.get("previous_response_id"):
                yield f"No tool call found for function call output with call_id {item['call_id']}."
            if item["call_id"] in outputs:
                yield f"Duplicate output for call_id {item['call_id']} in input[{index}]."
            outputs.append(item["call_id"])
        elif kind == "reasoning" and not follows(given[index + 1 :]):
            yield f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."
    for call in calls:
        if call not in outputs:
            yield f"No tool output found for function call {call}."


def follows(rest):
    """Reasoning leads to something that the model said or did."""
    after = next((item for item in rest if item.get("type") != "reasoning"), None)
    return (
        after is not None
        and (after.get("role") == "assistant" or not after.get("type", "message").startswith("message"))
        and not (after.get("type") or "").endswith("_output")
    )


def words(form, message):
    """The error as the provider sends it."""
    if form == MESSAGES:
        return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    return {"error": {"type": "invalid_request_error", "message": message, "param": None, "code": None}}
