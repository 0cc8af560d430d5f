"""What a provider remembers of its own thoughts, and what it refuses when they come back otherwise.

Messages: a thinking block holds only with the signature it was given, so never altered. Where thinking is on, the answers of an
open tool loop keep theirs. Models that preserve thinking bind each block to all that stood before it: instructions, tools, every
earlier message. Of such, thoughts may be left out from the beginning, from the end, or all of them, in a loop or not.

Responses: reasoning stays with the item that followed it and keeps its sealed content; an item with its id needs its reasoning.
"""
import fnmatch, hashlib

from answers import MESSAGES, RESPONSES
from counting import chain, plain, unmarked
from legality import blocks_of
import answers

# Models whose thoughts are bound to what stood before them.
PRESERVING = ["claude-fable-5-1*", "claude-mythos-5-1*", "claude-opus-5-5*", "claude-sonnet-5-5*"]
THINKING = ("thinking", "redacted_thinking")


class Bindings:
    """The thoughts given so far."""

    def __init__(self):
        # By signature or sealed content: the block as it was given, what it is bound to, and its place among all.
        self.thoughts = {}
        # By the call it led to: the thoughts of an answer.
        self.led = {}
        # By id: what a reasoning item held and what followed it. By id of what followed: the reasoning.
        self.reasoning, self.needed = {}, {}

    def note(self, form, body, say, seed):
        """Remembers what an answer to this request thinks."""
        whole = answers.whole(form, say, body, seed)
        if form == MESSAGES:
            self.note_messages(body, whole["content"])
        elif form == RESPONSES:
            self.note_responses(whole["output"])

    def breach(self, form, body):
        """The first thing that the provider would refuse, or None."""
        found = {MESSAGES: self.messages, RESPONSES: self.responses}.get(form, lambda _: iter(()))
        return next(found(body), None)

    # Messages

    def note_messages(self, body, blocks):
        bound = prefixes(body)[-1]
        thoughts = [block for block in blocks if block["type"] in THINKING]
        for block in thoughts:
            self.thoughts[key(block)] = block, bound, len(self.thoughts)
        for block in blocks:
            if block["type"] == "tool_use":
                self.led[block["id"]] = thoughts

    def messages(self, body):
        said = body["messages"]
        preserving = any(fnmatch.fnmatch(body.get("model") or "", one) for one in PRESERVING)
        latest = max((index for index, message in enumerate(said) if message["role"] == "assistant"), default=None)
        places, before = [], prefixes(body) if preserving else []
        for index, message in enumerate(said):
            for place, block in enumerate(blocks_of(message)):
                if block.get("type") not in THINKING:
                    continue
                where = f"messages.{index}.content.{place}"
                given, bound, number = self.thoughts.get(key(block), (None, None, None))
                if given is None or unmarked(block) != given:
                    yield altered(where, block, index == latest)
                    return
                if preserving and bound != before[index]:
                    yield (
                        f"{where}: `{block['type']}` block is no longer valid: `system`, `tools` or an earlier message has changed "
                        "since it was written. Remove it, or send what comes before it as it was."
                    )
                places.append((where, number))
        if preserving:
            yield from gaps(places)
        elif (body.get("thinking") or {}).get("type") in ("enabled", "adaptive"):
            yield from self.open_loop(said)

    def open_loop(self, said):
        """Thoughts that led to the calls of a loop that goes on."""
        for index, message in loop(said):
            blocks = blocks_of(message)
            calls = [block for block in blocks if block.get("type") == "tool_use"]
            wanted = self.led.get(calls[0]["id"], []) if calls else []
            if wanted and [block for block in map(unmarked, blocks) if block.get("type") in THINKING] != wanted:
                yield (
                    f"messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{blocks[0]['type']}`. When "
                    "`thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set "
                    "of `tool_use` and `tool_result` blocks)."
                )

    # Responses

    def note_responses(self, items):
        for item, after in zip(items, items[1:]):
            if item["type"] == "reasoning":
                self.reasoning[item["id"]] = item["encrypted_content"], same_item(after)
                self.needed[after["id"]] = item["id"]

    def responses(self, body):
        given = body.get("input") or []
        if isinstance(given, str):
            return
        present = {item.get("id") for item in given if item.get("type") == "reasoning"}
        for index, item in enumerate(given):
            name = item.get("id")
            if item.get("type") == "reasoning" and name in self.reasoning:
                sealed, after = self.reasoning[name]
                if item.get("encrypted_content") not in (sealed, None):
                    yield f"The encrypted content for item {name} could not be verified. Reason: Encrypted content could not be decrypted."
                if index + 1 >= len(given) or same_item(given[index + 1]) != after:
                    yield f"Item '{name}' of type 'reasoning' was provided without its required following item."
            elif name in self.needed and self.needed[name] not in present:
                yield (
                    f"Item '{name}' of type '{item.get('type', 'message')}' was provided without its required 'reasoning' item: "
                    f"'{self.needed[name]}'."
                )


def key(block):
    return block.get("signature") or block.get("data")


def altered(where, block, is_latest):
    if is_latest:
        return (
            f"{where}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must "
            "remain as they were in the original response."
        )
    return f"{where}: Invalid `{'signature' if block['type'] == 'thinking' else 'data'}` in `{block['type']}` block"


def prefixes(body):
    """All that stands before each message and behind the last, without thoughts and marks."""
    head = plain([body.get("tools"), body.get("system")])
    bare = [plain({**message, "content": thoughtless(message)}) for message in body["messages"]]
    return [*chain([head, *bare])]


def thoughtless(message):
    return [unmarked(block) for block in blocks_of(message) if block.get("type") not in THINKING]


def gaps(places):
    for (_, one), (where, other) in zip(places, places[1:]):
        if other != one + 1:
            yield f"{where}: thinking may be removed from the beginning or from the end, not from between"


def loop(said):
    """The answers since a user last said something else than what calls gave, if that is where the conversation stands."""
    found = []
    for index in range(len(said) - 1, -1, -1):
        if said[index]["role"] == "assistant":
            found.append((index, said[index]))
        elif any(block.get("type") != "tool_result" for block in blocks_of(said[index])):
            break
    return found[::-1]


def same_item(item):
    """What makes it this item, whether or not a client sends its id."""
    return item.get("call_id") or hashlib.sha256(plain(item.get("content")).encode()).hexdigest()
