"""A provider that follows a script: all three formats, streamed and not, and a log of what it saw and said.

It runs on a thread of whoever starts it. The script is a function from a request to what is done about it: `Say` an answer,
`Fail` with a status, `Drip` a stream until the client goes away, or `Give` a JSON value.
"""
import dataclasses, http.server, json, select, threading, time, urllib.parse

import answers


@dataclasses.dataclass
class Fail:
    """An error, in the words of the provider."""

    status: int
    value: dict
    headers: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Give:
    """A JSON value that is no model's answer."""

    value: dict


@dataclasses.dataclass
class Drip:
    """The beginning of a stream, then one more word at a time, until the client goes away or patience ends."""

    say: answers.Say
    every: float = 0.05
    patience: float = 15.0


class Request:
    """What came: the head as it was, the body as it was, and what can be read of it."""

    def __init__(self, number, method, path, headers, body):
        self.number, self.method, self.path, self.headers, self.body = number, method, path, headers, body
        self.bare = urllib.parse.urlsplit(path).path
        self.form = answers.PATHS.get(self.bare) if method == "POST" else None
        try:
            self.json = json.loads(body) if body else {}
        except ValueError:
            self.json = {}
        # What was done about it, and whether the client went away before it was done.
        self.reply, self.left, self.answer, self.seed = None, False, None, None

    def header(self, name):
        return next((value for key, value in self.headers if key.lower() == name), None)


class Upstream:
    """A running provider. `seen` is every request in the order in which they came."""

    def __init__(self, script, seed=lambda request: f"{request.number:04d}"):
        self.script, self.seed, self.seen, self.lock = script, seed, [], threading.Lock()
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.upstream = self
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def note(self, method, path, headers, body):
        with self.lock:
            request = Request(len(self.seen) + 1, method, path, headers, body)
            self.seen.append(request)
        return request

    def take(self):
        """What came since the last time."""
        with self.lock:
            seen, self.seen = self.seen, []
        return seen

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request, client_address):
        """A client that goes away is no error here."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        """The log is `Upstream.seen`."""

    def handle_any(self):
        request = self.server.upstream.note(self.command, self.path, self.headers.items(), self.read_body())
        request.reply = reply = self.server.upstream.script(request)
        try:
            self.send(request, reply)
        except OSError:
            request.left = True
            self.close_connection = True

    do_GET = do_POST = do_HEAD = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = handle_any

    def read_body(self):
        if "chunked" not in (self.headers.get("transfer-encoding") or ""):
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return body

    def send(self, request, reply):
        if isinstance(reply, Fail):
            self.send_json(reply.value, reply.status, reply.headers)
        elif isinstance(reply, Give):
            self.send_json(reply.value)
        elif isinstance(reply, Drip):
            self.send_drip(request, reply)
        else:
            self.send_answer(request, reply)

    def send_answer(self, request, say):
        request.seed = seed = self.server.upstream.seed(request)
        request.answer = say
        if not request.json.get("stream"):
            self.send_json(answers.whole(request.form, say, request.json, seed))
            return
        self.begin_stream()
        for event in answers.stream(request.form, say, request.json, seed):
            self.send_chunk(event)
        self.wfile.write(b"0\r\n\r\n")

    def send_drip(self, request, drip):
        request.seed = seed = self.server.upstream.seed(request)
        events = list(answers.stream(request.form, drip.say, request.json, seed))
        begun, again = events[: len(events) // 2], events[len(events) // 2]
        self.begin_stream()
        for event in begun:
            self.send_chunk(event)
        until = time.monotonic() + drip.patience
        while time.monotonic() < until:
            self.send_chunk(again)
            readable, _, _ = select.select([self.connection], [], [], drip.every)
            if readable and not self.connection.recv(1):
                raise BrokenPipeError
        self.close_connection = True

    def begin_stream(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("cache-control", "no-cache")
        self.send_header("transfer-encoding", "chunked")
        self.send_header("request-id", "req_scripted")
        self.end_headers()

    def send_chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def send_json(self, value, status=200, headers=()):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.send_header("request-id", "req_scripted")
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
