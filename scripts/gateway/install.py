"""What the scripts install, each at a version that was tried, into a cache of their own."""
import pathlib, subprocess, sys

from gateway import CACHE

PYTHON = ["openai==3.49.0", "anthropic==2.8.0"]
HASH = ["blake3==1.0.11"]
NODE = ["openai@6.49.0", "@anthropic-ai/sdk@1.8.0"]
AGENTS = {
    "goose": "@aaif/goose@0.20.1",
    "pi": "@mariozechner/pi-coding-agent@0.73.1",
    "claude": "@anthropic-ai/claude-code@2.1.197",
    "codex": "@openai/codex@0.166.0",
    "opencode": "opencode-ai@1.18.33",
}


def python():
    """A Python with the SDKs."""
    return venv(CACHE / "venv", PYTHON)


def venv(folder, packages):
    """A Python of its own with these packages."""
    if not_yet(folder, packages):
        run([sys.executable, "-m", "venv", folder])
        run([folder / "bin" / "pip", "install", "--quiet", *packages])
        done(folder, packages)
    return folder / "bin" / "python"


def blake3():
    """The hash that audit rows have of a body, in hexadecimal digits."""
    folder = CACHE / "blake3"
    if not_yet(folder, HASH):
        run([sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", folder, *HASH])
        done(folder, HASH)
    sys.path.append(str(folder))
    import blake3

    return lambda data: blake3.blake3(data).hexdigest()


def node():
    """A folder in which Node finds the SDKs."""
    return npm(CACHE / "npm", NODE)


def agents(names):
    """The programs of the agents, by name. Each has a folder of its own: they do not agree on their dependencies."""
    return {name: npm(CACHE / name, [AGENTS[name]]) / "node_modules" / ".bin" / name for name in names}


def npm(folder, packages):
    if not_yet(folder, packages):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"private": true}\n')
        run(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *packages], cwd=folder)
        done(folder, packages)
    return folder


def not_yet(folder, packages):
    mark = pathlib.Path(folder) / ".installed"
    return not mark.exists() or mark.read_text() != "\n".join(packages)


def done(folder, packages):
    (pathlib.Path(folder) / ".installed").write_text("\n".join(packages))


def run(command, **options):
    print("installing:", *map(str, command), file=sys.stderr)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **options)
