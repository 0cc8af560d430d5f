"""Sessions for load: each call repeats what was said and adds to it, as an agent's calls do. No two say the same."""
import itertools, json

from load_upstream import words
from varied import text

IDS = itertools.count(1)
SYSTEM = {"role": "system", "content": "You are a careful engineer. Answer in the language of the question. " * 4}


class Session:
    """A client's session: `messages` to begin with, each user's message about `letters` long, in a `window` of tokens if one
    is named."""

    def __init__(self, host, run, messages, letters, answer, window=None):
        self.name = f"load-{run}-{next(IDS)}"
        self.host, self.letters, self.answer = host, letters, answer
        self.window = f"x-epitome-window: {window}\r\n" if window else ""
        self.messages = [json.dumps(SYSTEM)]
        while len(self.messages) < messages:
            self.ask()
            self.answered()
        self.ask()

    def ask(self):
        """The user says something that nobody said before."""
        turn = len(self.messages)
        said = f"Part {turn} of {self.name}:\n{text(f'{self.name} {turn}', self.letters)}"
        self.messages.append(json.dumps({"role": "user", "content": said}))

    def answered(self):
        """The model says what the provider says when it is asked now."""
        said = {"role": "assistant", "content": words(f"{self.name}-{len(self.messages)}")}
        self.messages.append(json.dumps(said))

    def request(self):
        """The next call as it goes over the wire, whole history and all."""
        stream = ',"stream":true,"stream_options":{"include_usage":true}' if self.answer in ("stream", "slow") else ""
        body = f'{{"model":"test-model","messages":[{",".join(self.messages)}]{stream}}}'.encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: {self.host}\r\ncontent-type: application/json\r\n"
            f"authorization: Bearer sk-dummy\r\nuser-agent: load/1\r\nx-session-id: {self.name}\r\n{self.window}"
            f"x-answer: {self.answer}\r\nx-words: {self.name}-{len(self.messages)}\r\naccept: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self.answered()
        self.ask()
        return head.encode() + body
