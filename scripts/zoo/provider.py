"""The provider that all clients of the zoo ask: it refuses what is illegal or too long, bills by a cache of its own, and scripts a task.

It knows nothing of the gateway: legality is judged by what providers document, and the cache by what they promise. The script
answers each turn with the next step of a list, whatever the request says, so that no client can send it in circles.
"""
import dataclasses, json, re, time

import billing, history, legality, script, strict
from answers import Say
from upstream import Fail, Give

# Where a client looks for its shell, and where for the tools of the drivers.
READERS = ["read_part"]
SHELLS = [*script.SHELLS, "run_shell_command", "execute_command", "run_commands", "terminal"]
ENDERS = ["final_answer", "attempt_completion", "submit_and_exit"]


@dataclasses.dataclass
class Read:
    """One part of the notes is to be read."""

    number: int


@dataclasses.dataclass
class Flawed:
    """An answer that does not pass its client's validation."""

    number: int


class Finish:
    """The model has nothing more to do for this prompt."""


class Provider:
    """Takes `limit` tokens of input at most. Each request carries what was found: `bill`, `refused` (None, "long", "illegal"), `why`
    and `purpose` ("turn", "title", "compaction", "other"). `pace` is how many seconds the model thinks."""

    def __init__(self, answers, enough):
        self.answers, self.enough, self.limit, self.steps = answers, enough, 10**9, []
        self.ledger, self.asked, self.surplus, self.pace = billing.Ledger(), 0, 0, 0.0

    def __call__(self, request):
        request.bill, request.refused, request.why, request.purpose = None, None, None, "other"
        if not request.form:
            return beside(request)
        request.bill = self.ledger.bill(request.form, request.json)
        request.why = legality.breach(request.form, request.json)
        self.asked += 1
        if self.asked > self.enough:
            request.why = "the script has had enough"
        if request.why:
            request.refused = "illegal"
            return Fail(400, legality.words(request.form, request.why))
        if request.bill.tokens > self.limit:
            request.refused = "long"
            return strict.too_long(request.form, request.bill.tokens, self.limit)
        time.sleep(self.pace)
        say = self.say(request)
        say.usage, say.cached, say.written = request.bill.tokens, request.bill.read, request.bill.written
        self.ledger.note(request.form, request.json)
        return say

    def say(self, request):
        offered = script.tools(request.json)
        lines = history.of_request(request.form, request.json)
        if script.is_compaction(request, offered, lines):
            request.purpose = "compaction"
            return Say("<summary>\nParts of the notes were read, as the user asked. Go on with the next one.\n</summary>")
        if self.answers == "tools" and not offered:
            request.purpose = "title"
            return Say("Reading notes")
        request.purpose = "turn"
        if not self.steps:
            self.surplus += 1
            return Say("There is nothing more to do.")
        return getattr(self, f"by_{self.answers}")(self.steps.pop(0), offered)

    def by_tools(self, step, offered):
        """Tools that are offered: the drivers' own, or the shell of an agent."""
        if isinstance(step, Finish):
            ender = find(offered, ENDERS)
            text = "All the parts that you named have been read."
            return Say("", [script.fill(ender, {("answer", "result"): text})]) if ender else Say(text)
        reader = find(offered, READERS)
        if reader:
            return Say("", [script.fill(reader, {("number",): step.number})])
        command = f"cat notes/part-{step.number}.md && touch read-{step.number}"
        shell = script.pick(offered, SHELLS)
        if "commands" in (shell[1].get("properties") or {}):
            return Say("The next part.", [script.Call(shell[0], {"commands": [command]})])
        return Say("The next part.", [script.fill(shell, {("command", "cmd"): command})])

    def by_code(self, step, offered):
        """Programs in the text, as smolagents' CodeAgent runs them."""
        if isinstance(step, Finish):
            return Say('Thought: all of it has been read.\n<code>\nfinal_answer("All the parts have been read.")\n</code>')
        return Say(f"Thought: part {step.number} is next.\n<code>\nprint(read_part(number={step.number}))\n</code>")

    def by_edits(self, step, offered):
        """Changes to a file in the text, as aider applies them."""
        n = step.number
        block = f"<<<<<<< SEARCH\nvalue_{n} = None\n=======\nvalue_{n} = {n * 7}\n>>>>>>> REPLACE"
        return Say(f"Part {n} says what the value is.\n\nparts.py\n```python\n{block}\n```\n")

    def by_records(self, step, offered):
        """Records that are forced by a tool or a schema; a flawed one has a rating that validation refuses."""
        rating = 900 if isinstance(step, Flawed) else 3
        record = {"number": step.number, "rating": rating, "summary": f"What part {step.number} says, in a few words."}
        return Say("", [script.Call(offered[0][0], record)]) if offered else Say(json.dumps(record))

    def by_text(self, step, offered):
        """Plain talk."""
        return Say("All of it was understood." if isinstance(step, Finish) else f"Part {step.number} was understood.")


def find(offered, names):
    return next((tool for name in names for tool in offered if (tool[0] or "").lower() == name), None)


def beside(request):
    """What is no model's call: lists of models, probes, counts."""
    if request.bare.endswith("/count_tokens"):
        return Give({"input_tokens": len(request.body) // 4})
    if re.search(r"/models(/|$)", request.bare):
        return Give({"object": "list", "data": [], "models": []})
    if (request.header("upgrade") or "").lower() == "websocket":
        return Fail(426, {"error": {"type": "invalid_request_error", "message": "no websocket here"}})
    return Fail(404, {"error": {"type": "not_found_error", "message": "not found"}})


def strings(value):
    """Every string of a request, as the model reads it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from strings(one)
