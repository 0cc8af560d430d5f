"""What a model says, written as each provider writes it: whole, or as the events of a stream.

An answer is data (`Say`); the three formats are three ways to write it. Ids are derived from a seed, so that the same
script gives the same bytes twice: that is what lets two runs be compared.
"""
import dataclasses, json, re

CHAT, RESPONSES, MESSAGES = "chat", "responses", "messages"
PATHS = {"/v1/chat/completions": CHAT, "/v1/responses": RESPONSES, "/v1/messages": MESSAGES}
# Fixed, because a clock would make two runs differ.
CREATED = 1_760_000_000


@dataclasses.dataclass
class Call:
    """A tool the model calls."""

    name: str
    arguments: dict
    namespace: str | None = None


@dataclasses.dataclass
class Say:
    """What the model says: perhaps thoughts, perhaps text, perhaps calls. Codex may have its provider compact: an item of its own."""

    text: str = ""
    calls: list = dataclasses.field(default_factory=list)
    thought: str = ""
    compaction: str = ""
    usage: int = 0
    # Of the usage, what a cache held; half of it unless somebody knows.
    cached: int | None = None
    # Of the usage, what was written into a cache for a price.
    written: int = 0
    # A thought that only its author can read.
    sealed: str = ""

    def from_cache(self):
        return self.usage // 2 if self.cached is None else self.cached


def whole(form, say, request, seed):
    """The answer as one JSON value."""
    return {CHAT: chat_whole, RESPONSES: responses_whole, MESSAGES: messages_whole}[form](say, request, seed)


def stream(form, say, request, seed):
    """The answer as the events of a stream, each as it goes over the wire."""
    events = {CHAT: chat_events, RESPONSES: responses_events, MESSAGES: messages_events}[form](say, request, seed)
    for name, value in events:
        data = value if isinstance(value, str) else json.dumps(value)
        yield ((f"event: {name}\n" if name else "") + f"data: {data}\n\n").encode()


def words(text):
    return re.findall(r"\S+\s*|\s+", text)


def slices(text, size=12):
    return [text[at : at + size] for at in range(0, len(text), size)]


# Chat Completions


def chat_head(request, seed):
    return {"id": f"chatcmpl-{seed}", "created": CREATED, "model": request.get("model"), "system_fingerprint": "fp_scripted"}


def chat_calls(say, seed):
    return [
        {
            "id": f"call_{seed}_{number}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
        }
        for number, call in enumerate(say.calls)
    ]


def chat_usage(say):
    cached = {"cached_tokens": say.from_cache()}
    return {
        "prompt_tokens": say.usage,
        "completion_tokens": 20,
        "total_tokens": say.usage + 20,
        "prompt_tokens_details": cached,
    }


def chat_whole(say, request, seed):
    message = {"role": "assistant", "content": say.text or None, "refusal": None}
    if say.thought:
        message["reasoning_content"] = say.thought
    if say.calls:
        message["tool_calls"] = chat_calls(say, seed)
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if say.calls else "stop", "logprobs": None}
    return {**chat_head(request, seed), "object": "chat.completion", "choices": [choice], "usage": chat_usage(say)}


def chat_events(say, request, seed):
    head = {**chat_head(request, seed), "object": "chat.completion.chunk"}

    def chunk(delta, finish=None):
        return None, {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    for word in words(say.thought):
        yield chunk({"reasoning_content": word})
    for word in words(say.text):
        yield chunk({"content": word})
    for number, call in enumerate(chat_calls(say, seed)):
        function = call.pop("function")
        yield chunk({"tool_calls": [{"index": number, **call, "function": {"name": function["name"], "arguments": ""}}]})
        for piece in slices(function["arguments"]):
            yield chunk({"tool_calls": [{"index": number, "function": {"arguments": piece}}]})
    yield chunk({}, "tool_calls" if say.calls else "stop")
    if (request.get("stream_options") or {}).get("include_usage"):
        yield None, {**head, "choices": [], "usage": chat_usage(say)}
    yield None, "[DONE]"


# Messages


def messages_blocks(say, seed):
    if say.thought:
        yield {"type": "thinking", "thinking": say.thought, "signature": f"signed{seed}"}
    if say.sealed:
        yield {"type": "redacted_thinking", "data": f"{say.sealed}{seed}"}
    if say.text:
        yield {"type": "text", "text": say.text}
    for number, call in enumerate(say.calls):
        yield {"type": "tool_use", "id": f"toolu_{seed}_{number}", "name": call.name, "input": call.arguments}


def messages_head(request, seed):
    model = request.get("model")
    return {"id": f"msg_{seed}", "type": "message", "role": "assistant", "model": model, "stop_sequence": None}


def messages_usage(say, output):
    return {
        "input_tokens": say.usage - say.from_cache() - say.written,
        "cache_creation_input_tokens": say.written,
        "cache_read_input_tokens": say.from_cache(),
        "output_tokens": output,
    }


def messages_whole(say, request, seed):
    stop = "tool_use" if say.calls else "end_turn"
    content = list(messages_blocks(say, seed))
    usage = messages_usage(say, 20)
    return {**messages_head(request, seed), "content": content, "stop_reason": stop, "usage": usage}


def messages_events(say, request, seed):
    def event(kind, **rest):
        return kind, {"type": kind, **rest}

    message = {**messages_head(request, seed), "content": [], "stop_reason": None, "usage": messages_usage(say, 1)}
    yield event("message_start", message=message)
    yield event("ping")
    for index, block in enumerate(messages_blocks(say, seed)):
        empty, deltas = messages_deltas(block)
        yield event("content_block_start", index=index, content_block=empty)
        for delta in deltas:
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    stop = {"stop_reason": "tool_use" if say.calls else "end_turn", "stop_sequence": None}
    yield event("message_delta", delta=stop, usage={"output_tokens": 20})
    yield event("message_stop")


def messages_deltas(block):
    """A block as it begins, and what is added to it."""
    if block["type"] == "text":
        return {"type": "text", "text": ""}, [{"type": "text_delta", "text": word} for word in words(block["text"])]
    if block["type"] == "thinking":
        added = [{"type": "thinking_delta", "thinking": word} for word in words(block["thinking"])]
        signed = {"type": "signature_delta", "signature": block["signature"]}
        return {"type": "thinking", "thinking": "", "signature": ""}, [*added, signed]
    if block["type"] == "redacted_thinking":
        return block, []
    pieces = slices(json.dumps(block["input"]))
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]


# Responses


def responses_items(say, seed):
    if say.compaction:
        yield {"type": "compaction", "id": f"cmp_{seed}", "encrypted_content": say.compaction}
        return
    if say.thought:
        summary = [{"type": "summary_text", "text": say.thought}]
        yield {"type": "reasoning", "id": f"rs_{seed}", "summary": summary, "encrypted_content": f"sealed{seed}"}
    if say.text:
        content = [{"type": "output_text", "text": say.text, "annotations": []}]
        yield {"type": "message", "id": f"msg_{seed}", "role": "assistant", "status": "completed", "content": content}
    for number, call in enumerate(say.calls):
        item = {
            "type": "function_call",
            "id": f"fc_{seed}_{number}",
            "call_id": f"call_{seed}_{number}",
            "name": call.name,
            "arguments": json.dumps(call.arguments),
            "status": "completed",
        }
        yield {**item, "namespace": call.namespace} if call.namespace else item


def responses_whole(say, request, seed):
    usage = {
        "input_tokens": say.usage,
        "input_tokens_details": {"cached_tokens": say.from_cache()},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": say.usage + 20,
    }
    return {
        "id": f"resp_{seed}",
        "object": "response",
        "created_at": CREATED,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": request.get("model"),
        "output": list(responses_items(say, seed)),
        "parallel_tool_calls": True,
        "previous_response_id": request.get("previous_response_id"),
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": usage,
    }


def responses_events(say, request, seed):
    done = responses_whole(say, request, seed)
    begun = {**done, "status": "in_progress", "output": [], "usage": None}
    bare = [("response.created", {"response": begun}), ("response.in_progress", {"response": begun})]
    for index, item in enumerate(done["output"]):
        bare += responses_item_events(index, item)
    bare.append(("response.completed", {"response": done}))
    for number, (name, rest) in enumerate(bare):
        yield name, {"type": name, "sequence_number": number, **rest}


def responses_item_events(index, item):
    place = {"item_id": item["id"], "output_index": index}
    added = lambda empty: ("response.output_item.added", {"output_index": index, "item": {**item, **empty}})
    if item["type"] == "message":
        part = item["content"][0]
        where = {**place, "content_index": 0}
        yield added({"status": "in_progress", "content": []})
        yield "response.content_part.added", {**where, "part": {**part, "text": ""}}
        for word in words(part["text"]):
            yield "response.output_text.delta", {**where, "delta": word, "logprobs": []}
        yield "response.output_text.done", {**where, "text": part["text"], "logprobs": []}
        yield "response.content_part.done", {**where, "part": part}
    elif item["type"] == "function_call":
        yield added({"status": "in_progress", "arguments": ""})
        for piece in slices(item["arguments"]):
            yield "response.function_call_arguments.delta", {**place, "delta": piece}
        name = item["name"]
        yield "response.function_call_arguments.done", {**place, "name": name, "arguments": item["arguments"]}
    elif item["type"] == "reasoning":
        part = item["summary"][0]
        where = {**place, "summary_index": 0}
        yield added({"summary": []})
        yield "response.reasoning_summary_part.added", {**where, "part": {**part, "text": ""}}
        for word in words(part["text"]):
            yield "response.reasoning_summary_text.delta", {**where, "delta": word}
        yield "response.reasoning_summary_text.done", {**where, "text": part["text"]}
        yield "response.reasoning_summary_part.done", {**where, "part": part}
    else:
        yield added({})
    yield "response.output_item.done", {"output_index": index, "item": item}
