"""A small model on this machine, made to call tools: the words are its own, the calls are the session's.

The model is far too small to use tools. So its server stands behind one that adds to each answer the call which the session has
next; whoever asks sees an agent's answers, and what the model reads, counts and caches is all real.
"""
import http.client, json, shlex, subprocess, sys, time, urllib.parse

import counting
from upstream import Fail, Give

START = 300


class Server:
    """A model server: one that runs already, or one started by a command that takes a port."""

    def __init__(self, url=None, command=None, port=8091, log=None):
        self.process = None
        if command:
            url = f"http://127.0.0.1:{port}"
            self.process = subprocess.Popen([*shlex.split(command), str(port)], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.url = url.rstrip("/")
        self.wait()

    def wait(self):
        until = time.monotonic() + START
        while time.monotonic() < until:
            try:
                if self.ask("GET", "/health")[0] == 200:
                    return
            except OSError:
                if self.process and self.process.poll() is not None:
                    break
            time.sleep(0.5)
        self.stop()
        sys.exit(f"no model answers at {self.url}")

    def ask(self, method, path, value=None):
        address = urllib.parse.urlsplit(self.url)
        server = http.client.HTTPConnection(address.hostname, address.port, timeout=1200)
        body = value if isinstance(value, (bytes, type(None))) else json.dumps(value).encode()
        server.request(method, path, body, {"content-type": "application/json"})
        answer = server.getresponse()
        found = json.loads(answer.read() or b"{}")
        server.close()
        return answer.status, found

    def count(self, messages):
        """Tokens of a prompt, exactly."""
        return len(self.tokens(messages))

    def tokens(self, messages):
        _, made = self.ask("POST", "/apply-template", {"messages": messages})
        _, cut = self.ask("POST", "/tokenize", {"content": made["prompt"], "parse_special": True})
        return cut["tokens"]

    def chat(self, body):
        return self.ask("POST", "/v1/chat/completions", body)

    def stop(self):
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()


class Counting(Server):
    """The same server, asked only to cut prompts into tokens: its counts are real, its answers and its cache are by rule.

    The rule is the server's own with one slot: what a prompt has in common with the one before it, to the token, is not read again.
    """

    def __init__(self, *server):
        super().__init__(*server)
        self.held, self.said = [], 0

    def chat(self, body):
        tokens, self.said = self.tokens(json.loads(body)["messages"]), self.said + 1
        cached, self.held = common(tokens, self.held), tokens
        return 200, answered(self.said, len(tokens), cached)


class Scripted:
    """No model: says the same length of words every time, and holds what a prompt has in common with the one before it. For a quick look."""

    def __init__(self):
        self.held, self.said = "", 0

    def count(self, messages):
        return counting.tokens(self.prompt(messages))

    def prompt(self, messages):
        return "".join(counting.pieces("chat", {"messages": messages}))

    def chat(self, body):
        prompt, self.said = self.prompt(json.loads(body)["messages"]), self.said + 1
        cached, self.held = common(prompt, self.held) // counting.LETTERS, prompt
        return 200, answered(self.said, counting.tokens(prompt), cached)

    def stop(self):
        """Nothing runs."""


def common(one, other):
    """How much of one is the beginning of the other."""
    return next((at for at, (mine, theirs) in enumerate(zip(one, other)) if mine != theirs), min(len(one), len(other)))


def answered(number, tokens, cached):
    """An answer in a model's place, with what it would have cost."""
    usage = {"prompt_tokens": tokens, "completion_tokens": 24, "total_tokens": tokens + 24}
    usage |= {"prompt_tokens_details": {"cached_tokens": cached}}
    words = f"I looked at it, and number {number} is as it should be; I go on with the next."
    choice = {"index": 0, "message": {"role": "assistant", "content": words}, "finish_reason": "stop"}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "none"}
    return {**head, "choices": [choice], "usage": usage}


class Calling:
    """The script of an upstream: asks the model, and adds the call that is `next`. Refuses what its window does not hold."""

    def __init__(self, model, window, answer):
        self.model, self.window, self.answer, self.next, self.made = model, window, answer, None, 0

    def __call__(self, request):
        request.usage = request.refused = None
        if not request.form:
            return Fail(404, {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}})
        tokens = self.model.count(request.json["messages"])
        if tokens + self.answer > self.window:
            request.refused = tokens
            return self.too_long(tokens)
        status, answer = self.model.chat(request.body)
        if status != 200:
            request.refused = tokens
            return Fail(status, answer)
        request.usage = answer["usage"]
        return Give(self.add_call(answer))

    def too_long(self, tokens):
        words = f"request ({tokens} tokens) exceeds the available context size ({self.window} tokens), try increasing it"
        error = {"code": 400, "message": words, "type": "exceed_context_size_error"}
        return Fail(400, {"error": {**error, "n_prompt_tokens": tokens, "n_ctx": self.window}})

    def add_call(self, answer):
        # What servers say about their own speed is no part of an answer.
        answer.pop("timings", None)
        if self.next:
            self.made += 1
            function = {"name": "read_file", "arguments": json.dumps({"path": self.next})}
            call = {"id": f"call_{self.made:04d}", "type": "function", "function": function}
            answer["choices"][0]["message"]["tool_calls"] = [call]
            answer["choices"][0]["finish_reason"] = "tool_calls"
        return answer
