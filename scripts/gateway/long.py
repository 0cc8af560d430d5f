"""A long task: sixty calls with much to read in each, before a provider that takes little and refuses whatever is wrong.

The agent keeps all it read and sends it with every call. Without the gateway it would have to compact by itself, or fail.
"""
import collections, json

import counting, proof, script, tap, texts

CALLS = 60
# Every so often two commands are run at once.
PAIRS = 12
LETTERS = 6000, 8000
PATIENCE = 900
PROMPT = "TASK-{word}: read the parts in notes/ one after another with the shell, as you are told, then say that you are done."
HEAD = ["calls", "requests", "largest", "compacts", "epochs", "before", "after", "cached", "sessions", "forks"]
HEAD += ["long", "illegal", "own", "replayed", "hashed", "held"]
DIRECT = ["calls", "requests", "largest", "sent", "cached", "long", "illegal", "own", "held"]


class Run:
    """One agent on the task, and once more after it is resumed."""

    def __init__(self, agent, plan, strict, upstream, listener=None):
        self.agent, self.plan, self.strict, self.upstream, self.listener = agent, plan, strict, upstream, listener
        self.word = agent.log.parent.name.replace("-", "")
        self.notes, self.requests, self.done, self.pairs = [], [], 0, 0
        agent.patience, agent.more = PATIENCE, agent.steady

    def all(self):
        self.plan.asked, self.plan.pace, self.plan.enough = 0, self.agent.pace, 3 * CALLS
        self.strict.limit = self.agent.takes if self.listener else 10**9
        self.strict.forget()
        self.upstream.take()
        self.write_parts()
        self.task("long", range(CALLS - 2), PROMPT)
        self.task("more", range(CALLS - 2, CALLS), PROMPT)
        self.requests = [request for request in self.upstream.take() if request.form]
        self.done = sum((self.agent.work / f"read-{number}").exists() for number in range(CALLS))
        self.keep()

    def write_parts(self):
        folder = self.agent.work / "notes"
        folder.mkdir()
        writer = texts.Writer(self.word)
        for number in range(CALLS):
            (folder / f"part-{number}.md").write_text(writer.page(writer.random.randrange(*LETTERS)) + "\n")

    def task(self, name, numbers, prompt):
        word = f"{self.word}{name}"
        commands = [f"cat notes/part-{number}.md && touch read-{number}" for number in numbers]
        steps = []
        while commands:
            beside = commands.pop(1) if len(steps) % PAIRS == PAIRS - 1 and len(commands) > 1 else None
            self.pairs += bool(beside)
            steps.append(script.Shell(commands.pop(0), beside=beside))
        self.plan.tasks[word] = steps
        code = self.agent.prompt(prompt.format(word=word))
        if code:
            self.notes.append(f"{name} ended with {code}")
        if steps:
            self.notes.append(f"{len(steps)} steps of {name} were never asked for")

    def keep(self):
        """What the provider saw and what the agent sent, beside its log."""
        with open(self.agent.log.with_name("requests.jsonl"), "w") as file:
            for request in self.requests:
                about = {"number": request.number, "path": request.path, "purpose": request.purpose, "tokens": request.tokens}
                about |= {"cached": request.cached, "refused": request.refused, "why": request.why, "headers": request.headers}
                file.write(json.dumps({**about, "body": request.json, "answer": str(request.answer or request.reply)}) + "\n")
        with open(self.agent.log.with_name("sent.jsonl"), "w") as file:
            for request in self.listener.seen if self.listener else []:
                about = {"path": request.path, "status": request.status, "told": request.told}
                file.write(json.dumps({**about, "body": request.json}) + "\n")

    def refused(self, how):
        return [request for request in self.requests if request.refused == how]

    def counts(self):
        own = sum(request.purpose == "compaction" for request in self.requests)
        # The gateway answers those that no window holds.
        sent = self.listener.seen if self.listener else []
        own += sum("left=summarised" in (request.told or "") for request in sent)
        for request in self.refused("illegal")[:3]:
            self.notes.append(f"request {request.number} was refused: {request.why}")
        if own:
            self.notes.append(f"it compacted by itself {own} times")
        return len(self.refused("long")), len(self.refused("illegal")), own

    def row(self):
        """What the provider saw without a gateway."""
        long, illegal, own = self.counts()
        sent = sum(request.tokens for request in self.requests)
        held = self.done == CALLS and not illegal
        told = [f"{self.done}/{CALLS}", len(self.requests), largest(self.requests), sent, share(self.requests)]
        return [*told, long, illegal, own, yes(held)]


def largest(requests):
    return max((request.tokens for request in requests if not request.refused), default=0)


def share(requests):
    """Of what was sent, by the provider's own cache."""
    sent = sum(request.tokens for request in requests if not request.refused)
    return f"{sum(request.cached for request in requests) / max(sent, 1):.0%}"


def yes(held):
    return "yes" if held else "no"


def epochs(requests):
    """How often a request did more than grow, and why, as the gateway said."""
    causes = collections.Counter(tap.dictionary(request.told).get("cause") for request in requests)
    return ", ".join(f"{number} {cause}" for cause, number in causes.most_common() if cause) or "-"


def recorded(gateway, run, known, digest):
    """The row of an agent that went through the gateway. `known` are the sessions of those before it."""
    sessions = [one for one in gateway.ask("sessions", "--json") if one["id"] not in known]
    known |= {one["id"] for one in sessions}
    long, illegal, own = run.counts()
    sent = [request for request in run.listener.seen if request.form]
    before = sum(sum(map(counting.tokens, counting.pieces(request.form, request.json))) for request in sent)
    after = sum(request.tokens for request in run.requests if not request.refused)
    composed = [request for request in run.requests if request.purpose != "title"]
    found = proof.of(gateway, sessions, composed, digest)
    compactions = sum(one["compactions"] for one in sessions)
    lost = [request for request in sent if request.status != 200]
    forks = [thread for thread in found.threads if thread["start"]["type"] == "fork"]
    run.notes += found.wrong[:3] + (["it was taken to go back"] if len(forks) > (run.pairs + 1) * run.agent.parts else [])
    run.notes += [f"the agent was told {request.status}" for request in lost[:3]]
    run.notes += [f"{len(sessions)} sessions: {[one['title'] for one in sessions]}"] if len(sessions) != 1 else []
    run.notes += [] if compactions > 1 else ["it was not compacted several times"]
    held = run.done == CALLS and len(sessions) == 1 and compactions > 1 and not (illegal or own or lost) and found.holds()
    return [
        *[f"{run.done}/{CALLS}", len(run.requests), largest(run.requests), compactions, epochs(sent)],
        *[before, after, share(run.requests)],
        *[len(sessions), len(forks), long, illegal, own],
        *[f"{found.same}/{found.calls}", f"{found.known}/{found.sent}", yes(held and not run.notes)],
    ]
