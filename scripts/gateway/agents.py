"""The agents: how each is set up to ask the gateway, how it is run without a terminal, and how it comes to compact."""
import json, pathlib, subprocess

from answers import CHAT, MESSAGES, RESPONSES

# Models that each agent knows under these names, so that it makes no difference who answers.
MODELS = {CHAT: "test-model", MESSAGES: "claude-sonnet-4-5", RESPONSES: "gpt-5"}
PROMPT = "TASK-{word}: write hello into {word}.txt with the shell, then say that you are done."
# An agent that takes longer has lost its way.
PATIENCE = 120
# The room for an answer that the gateway leaves where nobody asks for any.
ANSWER = 16_000


class Agent:
    """An agent in a home of its own, set up for one of the formats."""

    subagents = False
    # How its own compaction is brought about: by an error, by the usage it is told, or by a prompt.
    compacts = "overflow"
    # How long a model has to think before it answers, in seconds.
    pace = 0.0
    # On a long task: how many tokens the provider takes, and beside them the room for an answer that the agent asks for, by format
    # (if it asks for none, what the gateway leaves by itself).
    takes, answer = 40_000, {}
    # Whether it tells of calls that were made at once as if they had come one after another, and when resumed at times of others in
    # another order: that is another history.
    parts = False
    # What keeps it from shortening its history by the mere number of calls, however small its requests are.
    steady = {}
    patience = PATIENCE

    def __init__(self, program, form, folder, base):
        self.program, self.form, self.base = program, form, base
        self.home, self.work = folder / "home", folder / "work"
        self.home.mkdir(parents=True)
        self.work.mkdir()
        subprocess.run(["git", "init", "--quiet"], cwd=self.work, check=True)
        self.log = folder / "agent.log"
        self.begun, self.more = False, {}
        self.set_up()

    def write(self, path, text):
        path = self.home / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def prompt(self, words):
        """Runs the agent on a prompt: a new session first, then always the same one."""
        command = [self.program, *(self.resume(words) if self.begun else self.begin(words))]
        self.begun = True
        paths = f"{pathlib.Path(self.program).parent}:/usr/local/bin:/usr/bin:/bin:{node_folder()}"
        environment = {"HOME": str(self.home), "PATH": paths, "TERM": "dumb", **self.environment(), **self.more}
        with open(self.log, "ab") as log:
            log.write(f"\n$ {' '.join(map(str, command))}\n".encode())
            log.flush()
            try:
                done = subprocess.run(
                    command, cwd=self.work, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=self.patience
                )
                return done.returncode
            except subprocess.TimeoutExpired:
                return "time"


def node_folder():
    return pathlib.Path(subprocess.run(["which", "node"], capture_output=True, text=True, check=True).stdout.strip()).parent


class Goose(Agent):
    # It keeps the times of messages in seconds; a model faster than that makes it lose calls when it resumes.
    pace = 1.05
    answer = {MESSAGES: 64_000, RESPONSES: 128_000}
    parts = True
    steady = {"GOOSE_TOOL_PAIR_SUMMARIZATION": "false"}

    def set_up(self):
        self.write(
            ".config/goose/config.yaml",
            "GOOSE_MODE: auto\nGOOSE_TELEMETRY_ENABLED: false\nextensions:\n  developer:\n    bundled: true\n"
            "    enabled: true\n    name: developer\n    type: builtin\n    timeout: 300\n",
        )

    def environment(self):
        # It asks /v1/responses by itself for models of this name.
        model = "gpt-5.1-codex" if self.form == RESPONSES else MODELS[self.form]
        provider = "anthropic" if self.form == MESSAGES else "openai"
        common = {"GOOSE_PROVIDER": provider, "GOOSE_MODEL": model, "GOOSE_DISABLE_KEYRING": "1"}
        keys = {"OPENAI_API_KEY": "dummy", "ANTHROPIC_API_KEY": "dummy"}
        return {**common, **keys, "OPENAI_HOST": self.base, "ANTHROPIC_HOST": self.base}

    def begin(self, words):
        return ["run", "--name", "one", "-t", words]

    def resume(self, words):
        return ["run", "--resume", "--name", "one", "-t", words]


class Pi(Agent):
    APIS = {CHAT: "openai-completions", MESSAGES: "anthropic-messages", RESPONSES: "openai-responses"}
    answer = dict.fromkeys(APIS, 8_000)

    def set_up(self):
        cost = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}
        model = {"id": MODELS[self.form], "name": MODELS[self.form], "reasoning": True, "input": ["text"], "cost": cost}
        model |= {"contextWindow": 128_000, "maxTokens": 8000}
        address = self.base if self.form == MESSAGES else f"{self.base}/v1"
        provider = {"baseUrl": address, "apiKey": "dummy", "api": self.APIS[self.form], "models": [model]}
        self.write(".pi/agent/models.json", json.dumps({"providers": {"gateway": provider}}))
        # By default it keeps more than these sessions hold, and would have nothing summarised.
        self.write(".pi/agent/settings.json", json.dumps({"compaction": {"keepRecentTokens": 100}}))

    def environment(self):
        return {"PI_OFFLINE": "1"}

    def begin(self, words):
        return ["-p", "--provider", "gateway", "--model", MODELS[self.form], words]

    def resume(self, words):
        return ["-p", "-c", "--provider", "gateway", "--model", MODELS[self.form], words]


class Claude(Agent):
    subagents = True
    compacts = "/compact"
    # Its tools and instructions alone are 29 000.
    takes, answer = 64_000, {MESSAGES: 32_000}

    def set_up(self):
        """It needs no file."""

    def environment(self):
        quiet = ["DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER", "DISABLE_ERROR_REPORTING"]
        quiet.append("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC")
        return {"ANTHROPIC_BASE_URL": self.base, "ANTHROPIC_API_KEY": "sk-ant-dummy", **dict.fromkeys(quiet, "1")}

    def begin(self, words):
        return ["-p", words, "--model", MODELS[MESSAGES], "--allowedTools", "Bash,Task,Agent", "--output-format", "json"]

    def resume(self, words):
        return [*self.begin(words), "--continue"]


class Codex(Agent):
    subagents = True
    compacts = "usage"
    PROVIDER = (
        'model_provider = "gateway"\n{common}[model_providers.gateway]\nname = "gateway"\nbase_url = "{base}/v1"\n'
        'env_key = "GATEWAY_KEY"\nwire_api = "responses"\n'
    )

    def set_up(self):
        common = 'model = "gpt-5"\napproval_policy = "never"\nsandbox_mode = "danger-full-access"\n'
        text = self.PROVIDER.format(common=common, base=self.base) + "[analytics]\nenabled = false\n"
        self.write(".codex/config.toml", text)

    def environment(self):
        return {"GATEWAY_KEY": "dummy", "OPENAI_API_KEY": "dummy", "CODEX_API_KEY": "dummy"}

    def begin(self, words):
        return ["exec", "--json", "--skip-git-repo-check", words]

    def resume(self, words):
        return ["exec", "resume", "--last", "--json", "--skip-git-repo-check", words]


class CodexBuiltIn(Codex):
    """With its own provider Codex tries a WebSocket first and has the provider compact."""

    PROVIDER = 'openai_base_url = "{base}/v1"\n{common}'


class OpenCode(Agent):
    subagents = True
    PACKAGES = {CHAT: "@ai-sdk/openai-compatible", MESSAGES: "@ai-sdk/anthropic", RESPONSES: "@ai-sdk/openai"}
    answer = dict.fromkeys(PACKAGES, 8_000)

    def set_up(self):
        model = f"gateway/{MODELS[self.form]}"
        limit = {"limit": {"context": 128_000, "output": 8000}}
        options = {"baseURL": f"{self.base}/v1", "apiKey": "dummy"}
        provider = {"npm": self.PACKAGES[self.form], "options": options, "models": {MODELS[self.form]: limit}}
        settings = {"model": model, "small_model": model, "autoupdate": False, "share": "disabled", "permission": "allow"}
        self.write(".config/opencode/opencode.json", json.dumps({**settings, "provider": {"gateway": provider}}))

    def environment(self):
        return {"OPENCODE_DISABLE_MODELS_FETCH": "1"}

    def begin(self, words):
        return ["run", "--format", "json", words]

    def resume(self, words):
        return ["run", "--format", "json", "--continue", words]


EVERY = [
    ("goose", "goose", Goose, CHAT),
    ("goose", "goose", Goose, MESSAGES),
    ("goose", "goose", Goose, RESPONSES),
    ("pi", "pi", Pi, CHAT),
    ("pi", "pi", Pi, MESSAGES),
    ("pi", "pi", Pi, RESPONSES),
    ("claude code", "claude", Claude, MESSAGES),
    ("codex", "codex", Codex, RESPONSES),
    ("codex built-in", "codex", CodexBuiltIn, RESPONSES),
    ("opencode", "opencode", OpenCode, CHAT),
    ("opencode", "opencode", OpenCode, MESSAGES),
    ("opencode", "opencode", OpenCode, RESPONSES),
]
