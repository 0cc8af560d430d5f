"""The gateway under test: started on a port of its own, asked by its own command line, and stopped."""
import json, os, pathlib, selectors, subprocess, sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CACHE = pathlib.Path(os.environ.get("EPITOME_GATEWAY_CACHE", pathlib.Path.home() / ".cache" / "epitome-gateway"))
# Long enough for a machine that is busy with other things.
START = 30


def program():
    """The program: EPITOME, or what a release build leaves."""
    target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    path = pathlib.Path(os.environ.get("EPITOME", pathlib.Path(target) / "release" / "epitome"))
    if not path.exists():
        sys.exit(f"there is no {path}: run `cargo build --release -p epitome-cli`, or name the program in EPITOME")
    return path


class Gateway:
    """`epitome serve` between clients and `openai`, `anthropic`, by `executable` if one is named."""

    def __init__(self, folder, openai, anthropic, *flags, executable=None):
        self.executable = executable or program()
        self.database = pathlib.Path(folder) / "gateway.db"
        self.log = open(pathlib.Path(folder) / "gateway.log", "ab")
        command = [self.executable, "--db", self.database, "serve", "--listen", "127.0.0.1:0"]
        command += ["--openai-upstream", openai, "--anthropic-upstream", anthropic, *flags]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log)
        self.url = self.first_line()

    def first_line(self):
        """The address, which it says as soon as it is ready."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            line = self.process.stdout.readline().decode().strip() if selector.select(START) else ""
        if not line.startswith("http://"):
            self.process.kill()
            said = pathlib.Path(self.log.name).read_text()
            sys.exit(f"the gateway did not start:\n{line}\n{said}")
        return line

    def stop(self):
        """Told to stop, it ends with 0."""
        self.process.terminate()
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def ask(self, *arguments, codes=(0,)):
        """What the command line says about the database, as JSON lines."""
        return ask(self.database, *arguments, codes=codes, executable=self.executable)


def ask(database, *arguments, codes=(0,), executable=None):
    """What the command line says about a database, as JSON lines; it has to end with one of these codes."""
    done = subprocess.run([executable or program(), "--db", database, *arguments], capture_output=True, text=True)
    if done.returncode not in codes:
        raise RuntimeError(f"epitome {' '.join(arguments)}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.split("\n") if line.strip()]
