"""A client of the zoo, as its description file tells of it: how it is installed, set up and run."""
import json, os, pathlib, re, subprocess, sys, tomllib

import agents, install
from answers import CHAT, MESSAGES, RESPONSES

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("EPITOME_ZOO_CACHE", pathlib.Path.home() / ".cache" / "epitome-zoo"))
FORMATS = [CHAT, RESPONSES, MESSAGES]
KEYS = {
    *("name", "about", "python", "node", "agent", "formats", "driver", "begin", "resume", "answers", "answer", "standing", "patterns"),
    *("environment", "files", "proxy", "models", "letters", "patience", "folder", "prompts", "restless", "room"),
}


class Description:
    """One file of scripts/zoo."""

    def __init__(self, path):
        self.path, told = path, tomllib.loads(path.read_text())
        unknown = set(told) - KEYS
        if unknown:
            sys.exit(f"{path}: unknown keys {', '.join(sorted(unknown))}; scripts/gateway-zoo --help lists them")
        self.name, self.about, self.formats = told["name"], told.get("about", ""), told["formats"]
        self.python, self.node, self.agent = told.get("python", []), told.get("node", []), told.get("agent")
        self.driver, self.begin = told.get("driver"), told.get("begin")
        self.resume = told.get("resume", self.begin)
        self.answers, self.answer = told.get("answers", "tools"), told.get("answer", agents.ANSWER)
        self.standing, self.patterns = told.get("standing", []), told.get("patterns", {})
        self.environment, self.files = told.get("environment", {}), told.get("files", {})
        self.proxy, self.models = told.get("proxy"), {**agents.MODELS, **told.get("models", {})}
        self.letters, self.patience = told.get("letters"), told.get("patience", 240)
        self.prompts, self.restless = told.get("prompts", 4), told.get("restless", False)
        self.share = told.get("room", 0.45)
        self.folder = CACHE / told.get("folder", self.name)

    def install(self):
        """Each client has a folder of its own: they do not agree on their dependencies, and the system stays as it is."""
        if self.agent:
            program = AGENT_PROGRAMS[self.agent]
            install.npm(CACHE / program, [install.AGENTS[program]])
        if self.python:
            install.venv(self.folder, self.python)
        if self.node:
            install.npm(self.folder, self.node)

    def client(self, form, folder, base, standing):
        """The client in a new home under `folder`, set up to ask `base`."""
        if self.agent:
            kind = getattr(agents, self.agent)
            program = AGENT_PROGRAMS[self.agent]
            client = kind(CACHE / program / "node_modules" / ".bin" / program, form, folder, base)
            client.more = kind.steady
        else:
            client = (Driven if self.driver else Commanded)(self, form, folder, base, standing)
        client.patience = self.patience
        for name, text in standing.items():
            if name not in ("system", "examples"):
                path = client.work / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text + "\n")
        return client

    def room(self, form):
        """Tokens that the gateway leaves for an answer: what the client asks for, or what the gateway leaves by itself."""
        if self.agent:
            return getattr(agents, self.agent).answer.get(form, agents.ANSWER)
        return self.answer


AGENT_PROGRAMS = {"Goose": "goose", "Pi": "pi", "Claude": "claude", "Codex": "codex", "CodexBuiltIn": "codex", "OpenCode": "opencode"}


def every():
    return [Description(path) for path in sorted(HERE.glob("*.toml"))]


class Commanded(agents.Agent):
    """A program that takes one prompt at a time."""

    def __init__(self, description, form, folder, base, standing):
        self.description, self.standing = description, standing
        places = [description.folder / "bin", description.folder / "node_modules" / ".bin"]
        self.places = [place for place in places if place.exists()]
        super().__init__(self.find((description.begin or ["python"])[0]), form, folder, base)

    def find(self, name):
        return next((place / name for place in self.places if (place / name).exists()), name)

    def set_up(self):
        for path, text in self.description.files.items():
            self.write(path, self.filled(text))

    def filled(self, text, prompt=""):
        base = self.base if self.form == MESSAGES else f"{self.base}/v1"
        given = {"host": self.base, "base": base, "model": self.description.models[self.form], "form": self.form, "prompt": prompt}
        given |= {"home": str(self.home), "work": str(self.work), "system": self.standing.get("system", ""), "drivers": str(HERE / "drivers")}
        return re.sub(r"\{(%s)\}" % "|".join(given), lambda found: given[found[1]], text)

    def environment(self):
        return {name: self.filled(value) for name, value in self.description.environment.items()}

    def begin(self, words):
        return [self.filled(one, words) for one in self.description.begin[1:]]

    def resume(self, words):
        return [self.filled(one, words) for one in self.description.resume[1:]]

    def prompts(self, every):
        return [self.prompt(words) for words in every]


class Driven(Commanded):
    """A library: a small program of scripts/zoo/drivers holds the conversation."""

    def __init__(self, description, form, folder, base, standing):
        super().__init__(description, form, folder, base, standing)
        self.is_node = description.driver.endswith(".mjs")
        self.program = "node" if self.is_node else self.find("python") if description.python else sys.executable
        if self.is_node:
            self.link_modules()

    def link_modules(self):
        """Node looks for packages beside a program, so the driver is copied to where they are."""
        for path in (HERE / "drivers").glob("*.mjs"):
            (self.description.folder / path.name).write_text(path.read_text())

    def environment(self):
        told = {"BASE": self.base, "FORM": self.form, "MODEL": self.description.models[self.form]}
        told |= {"SYSTEM": self.standing.get("system", ""), "EXAMPLES": self.standing.get("examples", ""), "ANSWER": str(self.description.answer)}
        told |= {"PROMPTS": str(self.said)}
        paths = ":".join(map(str, [*self.places, pathlib.Path(self.program).parent, "/usr/local/bin", "/usr/bin", "/bin", agents.node_folder()]))
        return {"PATH": paths, "PYTHONDONTWRITEBYTECODE": "1", **{f"ZOO_{name}": value for name, value in told.items()}, **super().environment()}

    def prompts(self, every):
        # A file, because one variable of the environment holds no more than 128 KB.
        self.said = self.home / "prompts.json"
        self.said.write_text(json.dumps(every))
        return [self.prompt("")]

    def begin(self, words):
        inside = self.description.folder if self.is_node else HERE / "drivers"
        return [str(inside / self.description.driver)]
