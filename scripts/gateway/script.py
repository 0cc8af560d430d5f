"""What the scripted provider makes agents do.

A prompt names its task (`TASK-word`), and a task is a list of steps: run a command in the agent's shell, start a subagent, be
told that the context is too long. Each request for the task gets the next step, whatever else stands in it; when there is
none left, the task is done in words. So nothing an agent adds to its requests can send the script in circles.
"""
import dataclasses, json, re, time

from answers import RESPONSES, Call, Say
from upstream import Fail, Give
import history

SHELLS = ["bash", "shell", "exec_command", "shell_command", "developer__shell"]
SPAWNERS = ["agent", "task", "spawn_agent"]
SUMMARISING = re.compile(r"summar|compact", re.I)


@dataclasses.dataclass
class Shell:
    """Runs a command, perhaps with another beside it. High usage makes some agents compact by themselves."""

    command: str
    usage: int | None = None
    beside: str | None = None


@dataclasses.dataclass
class Spawn:
    """Starts a subagent on another task."""

    task: str


class Await:
    """Waits for the subagent, where that takes a call of its own."""


class Overflow:
    """The provider says once that the context is too long."""


class Script:
    """The steps of each task, and what each request turned out to be: `turn`, `title`, `compaction` or `other`.

    `pace` is how many seconds the model thinks, and after `enough` requests an agent is taken to go in circles."""

    def __init__(self, enough=60):
        self.tasks, self.asked, self.summaries, self.pace, self.enough = {}, 0, 0, 0.0, enough

    def __call__(self, request):
        request.purpose, request.task = "other", None
        if request.bare.endswith("/models"):
            return Give({"object": "list", "data": [], "models": []})
        if (request.header("upgrade") or "").lower() == "websocket":
            return Fail(426, {"error": {"type": "invalid_request_error", "message": "no websocket here"}})
        if not request.form:
            return Fail(404, {"error": {"type": "not_found_error", "message": "not found"}})
        self.asked += 1
        if self.asked > self.enough:
            return Fail(400, {"error": {"type": "invalid_request_error", "message": "the script has had enough"}})
        time.sleep(self.pace)
        return self.answer(request)

    def answer(self, request):
        offered = tools(request.json)
        lines = history.of_request(request.form, request.json)
        request.task = task(lines)
        usage = len(request.body) // 4
        if is_compaction(request, offered, lines):
            request.purpose = "compaction"
            return self.summary(request, usage)
        if not offered:
            request.purpose = "title"
            return Say("A file called hello", usage=usage)
        request.purpose = "turn"
        steps = self.tasks.get(request.task) or []
        if not steps:
            return Say(f"Done with {(request.task or 'all').lower()}.", usage=usage)
        return self.step(steps.pop(0), request, offered, lines, usage)

    def step(self, step, request, offered, lines, usage):
        if isinstance(step, Overflow):
            return overflow(request.form)
        if isinstance(step, Shell):
            tool, commands = pick(offered, SHELLS), filter(None, [step.command, step.beside])
            calls = [fill(tool, {("command", "cmd"): command}) for command in commands]
            return Say("Running it.", calls, thought="A command will do.", usage=step.usage or usage)
        if isinstance(step, Spawn):
            return Say("Sending somebody.", [spawn(offered, step.task)], usage=usage)
        return wait(offered, lines, usage)

    def summary(self, request, usage):
        self.summaries += 1
        text = f"The user wanted some files, and they were written. Mark {self.summaries} of {request.number}."
        if request.form == RESPONSES and request.json["input"][-1].get("type") == "compaction_trigger":
            return Say(compaction=f"sealed summary {request.number}", usage=usage)
        return Say(f"<analysis>\nNothing odd.\n</analysis>\n<summary>\n{text}\n</summary>", usage=usage)


def task(lines):
    """The task that was named last. Only users name tasks."""
    named = [word for who, what in lines if who == "user" for word in re.findall(r"TASK-(\w+)", what)]
    return named[-1] if named else None


def is_compaction(request, offered, lines):
    if request.form == RESPONSES and (request.json.get("input") or [{}])[-1].get("type") == "compaction_trigger":
        return True
    if lines and "Respond with TEXT ONLY" in lines[-1][1]:
        return True
    asks = json.dumps([request.json.get("system"), (request.json.get("messages") or [None])[0], lines[-1:]])
    return not offered and bool(SUMMARISING.search(asks)) and "title" not in asks.lower()


def tools(body):
    """The tools offered: name, schema and namespace of each."""
    offered = []
    for tool in body.get("tools") or []:
        inner = tool.get("tools") if tool.get("type") == "namespace" else [tool.get("function") or tool]
        space = tool.get("name") if tool.get("type") == "namespace" else None
        for one in inner or []:
            schema = one.get("input_schema") or one.get("parameters") or {}
            offered.append((one.get("name") or one.get("type"), schema, space))
    return offered


def pick(offered, names):
    """The first tool with one of these names, in the order of the names."""
    for name in names:
        for tool in offered:
            if (tool[0] or "").lower() == name:
                return tool
    raise LookupError(f"none of {names} in {[tool[0] for tool in offered]}")


def fill(tool, given):
    """A call with these arguments and something for everything else that is required."""
    name, schema, space = tool
    properties = schema.get("properties") or {}
    arguments = {}
    for names, value in given.items():
        key = next(key for key in names if key in properties)
        arguments[key] = ["bash", "-c", value] if properties[key].get("type") == "array" else value
    for key in schema.get("required") or []:
        kind = str((properties.get(key) or {}).get("type", "string"))
        arguments.setdefault(key, {"boolean": False, "integer": 10_000, "number": 10_000, "array": []}.get(kind, "as told"))
    return Call(name, arguments, space)


def spawn(offered, word):
    tool = pick(offered, SPAWNERS)
    call = fill(tool, {("prompt", "message"): f"TASK-{word}: write hello into {word}.txt with the shell"})
    if "subagent_type" in (tool[1].get("properties") or {}):
        call.arguments["subagent_type"] = "general" if tool[0] == "task" else "general-purpose"
    return call


def wait(offered, lines, usage):
    """Codex starts a subagent and goes on; waiting is a call with the ids that starting gave."""
    named = json.loads(next(what for who, what in reversed(lines) if who == "result"))
    call = fill(pick(offered, ["wait_agent", "wait"]), {})
    properties = next(schema for name, schema, _ in offered if name == call.name).get("properties") or {}
    ids = [value for key, value in named.items() if key.endswith("id")]
    for key, shape in properties.items():
        if shape.get("type") == "array":
            call.arguments[key] = ids
    return Say("Waiting.", [call], usage=usage)


def overflow(form):
    if form == "messages":
        message = "prompt is too long: 213456 tokens > 200000 maximum"
        return Fail(400, {"type": "error", "error": {"type": "invalid_request_error", "message": message}})
    message = (
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 140000 tokens."
        if form == "chat"
        else "Your input exceeds the context window of this model. Please adjust your input and try again."
    )
    error = {"type": "invalid_request_error", "code": "context_length_exceeded", "message": message}
    return Fail(400, {"error": {**error, "param": "messages" if form == "chat" else "input"}})
