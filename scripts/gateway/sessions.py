"""Sessions for load: each call repeats what was said and adds to it, as an agent's calls do."""
import itertools, json

from load_upstream import TEXT

IDS = itertools.count(1)
SYSTEM = {"role": "system", "content": "You are a careful engineer. Answer in the language of the question. " * 4}
ANSWER = json.dumps({"role": "assistant", "content": TEXT})


class Session:
    """A client's session: `messages` to begin with, each user's message about `size` letters."""

    def __init__(self, host, run, messages, size, answer):
        self.number, self.size = next(IDS), size
        self.name = f"load-{run}-{self.number}"
        self.host, self.answer = host, answer
        self.messages = [json.dumps(SYSTEM)]
        while len(self.messages) < messages:
            self.ask()
            self.messages.append(ANSWER)
        self.ask()

    def ask(self):
        """The user says something that nobody said before."""
        turn = len(self.messages)
        words = f"Part {turn} of {self.name}: what does `take_{turn}({turn * 7})` do when the reader is empty? "
        text = (words * (self.size // len(words) + 1))[: self.size]
        self.messages.append(json.dumps({"role": "user", "content": text}))

    def request(self):
        """The next call as it goes over the wire, whole history and all."""
        stream = "" if self.answer == "whole" else ',"stream":true,"stream_options":{"include_usage":true}'
        body = f'{{"model":"test-model","messages":[{",".join(self.messages)}]{stream}}}'.encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: {self.host}\r\ncontent-type: application/json\r\n"
            f"authorization: Bearer sk-dummy\r\nuser-agent: load/1\r\nx-session-id: {self.name}\r\n"
            f"x-answer: {self.answer}\r\naccept: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self.messages.append(ANSWER)
        self.ask()
        return head.encode() + body
