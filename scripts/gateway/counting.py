"""What a scripted provider counts: tokens by a plain rule, and what its prompt cache would have held."""
import hashlib, json

from answers import CHAT, MESSAGES, RESPONSES

# Letters of JSON to a token: near what tokenizers make of prose and code.
LETTERS = 4
HISTORY = {CHAT: "messages", MESSAGES: "messages", RESPONSES: "input"}
HEAD = {CHAT: ["tools"], MESSAGES: ["tools", "system"], RESPONSES: ["tools", "instructions"]}


def pieces(form, body):
    """What the model reads of a request, in the order a cache does: tools, instructions, then message by message."""
    said = body.get(HISTORY[form]) or []
    said = [{"role": "user", "content": said}] if isinstance(said, str) else said
    return [plain(body.get(key)) for key in HEAD[form] if body.get(key)] + [plain(one) for one in said]


def plain(value):
    """A value in one spelling: cache marks may move, and a string is the one block that it stands for."""
    return json.dumps(unmarked(value), sort_keys=True, ensure_ascii=False)


def unmarked(value):
    if isinstance(value, list):
        return [unmarked(one) for one in value]
    if not isinstance(value, dict):
        return value
    value = {key: unmarked(one) for key, one in value.items() if key != "cache_control"}
    if isinstance(value.get("content"), str):
        value["content"] = [{"type": "text", "text": value["content"]}]
    return value


def tokens(piece):
    return -(-len(piece) // LETTERS)


class Cache:
    """Every beginning of every request that was answered, for as long as it lives."""

    def __init__(self):
        self.known = set()

    def read(self, pieces):
        """How many tokens of these it holds."""
        held = 0
        for piece, link in zip(pieces, chain(pieces)):
            if link not in self.known:
                break
            held += tokens(piece)
        return held

    def write(self, pieces):
        self.known.update(chain(pieces))


def chain(pieces):
    link = b""
    for piece in pieces:
        link = hashlib.sha256(link + piece.encode("utf-8", "surrogatepass")).digest()
        yield link
