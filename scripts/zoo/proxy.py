"""LiteLLM's proxy, before the gateway or behind it."""
import socket, subprocess, sys, time, urllib.error, urllib.request

# It imports for a long time on a busy machine.
START = 120


class Proxy:
    """A running proxy that asks `upstream` for every model."""

    def __init__(self, description, folder, upstream):
        programs = description.folder / "bin"
        port = free_port()
        self.url, self.log = f"http://127.0.0.1:{port}", open(folder / "proxy.log", "ab")
        settings = folder / "proxy.yaml"
        settings.write_text(description.proxy["settings"].replace("{upstream}", upstream))
        command = [programs / "litellm", "--config", settings, "--port", str(port), "--host", "127.0.0.1"]
        environment = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(folder), **description.proxy.get("environment", {})}
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=environment)
        self.wait()

    def wait(self):
        until = time.monotonic() + START
        while time.monotonic() < until and self.process.poll() is None:
            try:
                urllib.request.urlopen(f"{self.url}/health/liveliness", timeout=5).read()
                return
            except (OSError, urllib.error.URLError):
                time.sleep(0.3)
        self.stop()
        sys.exit(f"the proxy did not start: see {self.log.name}")

    def stop(self):
        """It has nothing to lose, and takes its time when asked politely."""
        self.process.kill()
        self.process.wait()
        return 0


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
