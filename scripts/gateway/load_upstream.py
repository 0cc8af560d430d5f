"""A provider for load: answers without a model, as fast as Python goes. Prints its address; `--slow` is how long a slow stream takes.

It reads every body to its end and answers as the header `x-answer` says: `whole`, `late`, which is whole after a third of a
second, `stream`, `slow`, which says a word at a time, or `summary-NAME`. Each answer has an id of its own, as it would, and
words of its own where the header `x-words` names what they follow from.
"""
import argparse, asyncio, itertools, json

from varied import text

TEXT = "The reader keeps each span until its owner asks again, and then drops it. " * 8
LETTERS = 600
WORDS = 20
# No model answers a long request sooner.
LATE = 0.3
NUMBERS = itertools.count(1)


class Provider(asyncio.Protocol):
    """One connection, one request after the other."""

    def __init__(self, slow):
        self.slow, self.buffer, self.transport, self.task = slow, bytearray(), None, None

    def connection_made(self, transport):
        self.transport = transport

    def connection_lost(self, error):
        if self.task:
            self.task.cancel()

    def data_received(self, data):
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = bytes(self.buffer[:end])
            length = int(header(head, "content-length") or 0)
            if len(self.buffer) < end + 4 + length:
                return
            del self.buffer[: end + 4 + length]
            self.answer(head)

    def answer(self, head):
        kind = header(head, "x-answer") or "whole"
        seed = header(head, "x-words")
        said = words(seed) if seed else TEXT
        if kind == "slow":
            self.task = asyncio.ensure_future(self.drip(said))
        elif kind == "stream":
            self.transport.write(STREAM_HEAD + b"".join(chunked(event) for event in events(said)) + b"0\r\n\r\n")
        else:
            body = whole(summary(kind.removeprefix("summary-")) if kind.startswith("summary-") else said)
            say = lambda: self.transport.write(WHOLE_HEAD % len(body) + body)
            asyncio.get_running_loop().call_later(LATE, say) if kind == "late" else say()

    async def drip(self, said):
        self.transport.write(STREAM_HEAD)
        every = events(said)
        for event in every:
            self.transport.write(chunked(event))
            await asyncio.sleep(self.slow / len(every))
        self.transport.write(b"0\r\n\r\n")


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
WHOLE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
USAGE = {"prompt_tokens": 300, "completion_tokens": 100, "total_tokens": 400}


def header(head, name):
    """What a head says under a name, however that is written."""
    lines = (line.partition(b":") for line in head.split(b"\r\n"))
    return next((value.strip().decode() for key, _, value in lines if key.lower() == name.encode()), None)


def words(seed):
    """What a model says that is asked for this."""
    return text(seed, LETTERS)


def chunked(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def summary(name):
    """What a model says that is asked for a summary."""
    return f"Summary {name}: the reader was looked at from all sides, and its owner asked for each span in turn."


def whole(text):
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    head = {"id": f"chatcmpl-{next(NUMBERS)}", "object": "chat.completion", "created": 1, "model": "test-model"}
    return json.dumps({**head, "choices": [choice], "usage": USAGE}).encode()


def events(said):
    """The answer in some twenty events."""
    head = {"id": f"chatcmpl-{next(NUMBERS)}", "object": "chat.completion.chunk", "created": 1, "model": "test-model"}
    size = -(-len(said) // WORDS)
    deltas = [{"role": "assistant", "content": ""}]
    deltas += [{"content": said[at : at + size]} for at in range(0, len(said), size)]
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    values = [json.dumps({**head, "choices": [choice]}) for choice in choices]
    values += [json.dumps({**head, "choices": [], "usage": USAGE}), "[DONE]"]
    return [f"data: {value}\n\n".encode() for value in values]


async def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--slow", type=float, default=20)
    options = options.parse_args()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Provider(options.slow), "127.0.0.1", 0, backlog=2048)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
