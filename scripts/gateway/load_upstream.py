"""A provider for load: fixed answers, as fast as Python goes. Prints its address; `--slow` is how long a slow stream takes.

It reads every body to its end and answers as the header `x-answer` says: `whole`, `stream`, `slow`, which says a word at a
time, or `summary-NAME`. Each answer has an id of its own, as it would.
"""
import argparse, asyncio, itertools, json

TEXT = "The reader keeps each span until its owner asks again, and then drops it. " * 8
WORDS = 20
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
            head = bytes(self.buffer[:end]).lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0]) if b"content-length:" in head else 0
            if len(self.buffer) < end + 4 + length:
                return
            del self.buffer[: end + 4 + length]
            self.answer(head)

    def answer(self, head):
        if b"x-answer: slow" in head:
            self.task = asyncio.ensure_future(self.drip())
        elif b"x-answer: stream" in head:
            self.transport.write(STREAM_HEAD + b"".join(chunked(event) for event in events()) + b"0\r\n\r\n")
        else:
            named = head.split(b"x-answer: summary-")[1:]
            body = whole(summary(named[0].split()[0].decode()) if named else TEXT)
            self.transport.write(WHOLE_HEAD % len(body) + body)

    async def drip(self):
        self.transport.write(STREAM_HEAD)
        every = events()
        for event in every:
            self.transport.write(chunked(event))
            await asyncio.sleep(self.slow / len(every))
        self.transport.write(b"0\r\n\r\n")


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
WHOLE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
USAGE = {"prompt_tokens": 300, "completion_tokens": 100, "total_tokens": 400}


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


def events():
    """The answer in some twenty events."""
    head = {"id": f"chatcmpl-{next(NUMBERS)}", "object": "chat.completion.chunk", "created": 1, "model": "test-model"}
    size = -(-len(TEXT) // WORDS)
    deltas = [{"role": "assistant", "content": ""}]
    deltas += [{"content": TEXT[at : at + size]} for at in range(0, len(TEXT), size)]
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
