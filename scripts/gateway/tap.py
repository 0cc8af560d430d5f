"""Between an agent and the gateway: passes everything on, and notes what the agent sent and what the gateway said it did."""
import http.client, re, threading, urllib.parse

from upstream import Handler, Request, Server

OWN = {"host", "connection", "transfer-encoding", "content-length", "keep-alive"}


class Tap:
    """A listener of its own before `base`. `seen` are the requests, each with `status` and `told`, the gateway's header."""

    def __init__(self, base):
        self.base, self.seen, self.lock = urllib.parse.urlsplit(base), [], threading.Lock()
        self.server = Server(("127.0.0.1", 0), Passing)
        self.server.tap = self
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def note(self, request):
        with self.lock:
            self.seen.append(request)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Passing(Handler):
    def handle_any(self):
        tap = self.server.tap
        body = self.read_body()
        request = Request(len(tap.seen) + 1, self.command, self.path, self.headers.items(), body)
        request.status = request.told = None
        tap.note(request)
        server = http.client.HTTPConnection(tap.base.hostname, tap.base.port, timeout=600)
        try:
            self.pass_on(server, request)
        except OSError:
            self.close_connection = True
        finally:
            server.close()

    do_GET = do_POST = do_HEAD = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = handle_any

    def pass_on(self, server, request):
        headers = {name: value for name, value in request.headers if name.lower() not in OWN}
        server.request(request.method, request.path, request.body or None, headers)
        answer = server.getresponse()
        request.status, request.told = answer.status, answer.headers.get("x-epitome")
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in OWN:
                self.send_header(name, value)
        if request.method == "HEAD":
            self.end_headers()
            return
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        while piece := answer.read1(65536):
            self.send_chunk(piece)
        self.wfile.write(b"0\r\n\r\n")


def dictionary(told):
    """The header's members: `epoch=3, left=composed, cause="threshold"`."""
    return {name: value.strip('"') for name, value in re.findall(r'([\w-]+)=("[^"]*"|[^,]*)', told or "")}
