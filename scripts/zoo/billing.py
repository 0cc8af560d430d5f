"""What a provider bills for input: its own prompt cache, as each format has it, and a price for each kind of token.

OpenAI's cache is automatic: it holds the beginnings of earlier requests in steps of 128 tokens, from 1 024 tokens on, and reading
costs a tenth. Anthropic's holds what a client marked: writing costs a quarter more, reading a tenth, and a mark finds an earlier
one only if it is among the 20 blocks before it. Both hold for minutes, so nothing is forgotten within a run.

Tokens are a quarter of a request's letters, whoever asks. It is a plain rule that no side of a comparison can gain from.
"""
import dataclasses, hashlib, json

import counting
from answers import MESSAGES

# OpenAI's cache goes by steps of so many tokens; neither cache holds less than the floor.
STEP, FLOOR = 128, 1024
# How many blocks before a mark Anthropic looks at.
REACH = 20
READ, WRITE = 0.1, 1.25


@dataclasses.dataclass
class Bill:
    """Tokens of a request: all of them, and of these what the cache held and what was written into it for a price."""

    tokens: int
    read: int = 0
    written: int = 0

    def cost(self):
        """In tokens at the full price."""
        return self.tokens - self.read - self.written + READ * self.read + WRITE * self.written


class Ledger:
    """The cache of one provider for one run."""

    def __init__(self):
        self.known = set()

    def bill(self, form, body):
        """What a request costs, given those that were answered before it."""
        return self.marked(body) if form == MESSAGES else self.automatic(form, body)

    def note(self, form, body):
        """The request was answered: from now on the cache holds it."""
        if form == MESSAGES:
            blocks = list(chained(body))
            self.known.update(link for link, size, mark in blocks if mark and size >= FLOOR)
        else:
            self.known.update(link for link, _ in steps(form, body))

    def automatic(self, form, body):
        read = 0
        for link, size in steps(form, body):
            if link not in self.known:
                break
            read = size
        return Bill(sum(map(counting.tokens, counting.pieces(form, body))), read if read >= FLOOR else 0)

    def marked(self, body):
        blocks = list(chained(body))
        read = written = 0
        for place, (_, size, mark) in enumerate(blocks):
            if not mark:
                continue
            written = max(written, size if size >= FLOOR else 0)
            reach = blocks[max(0, place - REACH) : place + 1]
            read = max([read, *(size for link, size, _ in reach if link in self.known)])
        return Bill(blocks[-1][1] if blocks else 0, read, max(0, written - read))


def steps(form, body):
    """The beginnings of a request that an automatic cache knows apart, each with its tokens."""
    text, link = "".join(counting.pieces(form, body)), b""
    width = STEP * counting.LETTERS
    for at in range(0, len(text) - width + 1, width):
        link = hashlib.sha256(link + text[at : at + width].encode("utf-8", "surrogatepass")).digest()
        yield link, (at + width) // counting.LETTERS


def chained(body):
    """The beginnings of a Messages request, block by block: a digest, the tokens up to there, and whether it is marked."""
    blocks = [("tool", tool) for tool in body.get("tools") or []]
    blocks += [("system", block) for block in as_blocks(body.get("system"))]
    for message in body.get("messages") or []:
        blocks += [(message.get("role"), block) for block in as_blocks(message.get("content"))]
    link, letters = b"", 0
    for place, (role, block) in enumerate(blocks):
        text = role + counting.plain(block)
        link = hashlib.sha256(link + text.encode("utf-8", "surrogatepass")).digest()
        letters += len(text)
        # A mark on the request itself stands for one on its last block.
        mark = is_marked(block) or (place == len(blocks) - 1 and bool(body.get("cache_control")))
        yield link, -(-letters // counting.LETTERS), mark


def as_blocks(content):
    return [{"type": "text", "text": content}] if isinstance(content, str) else content or []


def is_marked(value):
    return '"cache_control": {' in json.dumps(value)
