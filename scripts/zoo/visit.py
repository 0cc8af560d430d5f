"""One run of a client: what it is asked to do, in which setting it does so, and what came of it."""
import collections, dataclasses, json, re, time, urllib.request

import provider, texts
from gateway import Gateway
from provider import Finish, Flawed, Read
from proxy import Proxy
from upstream import Upstream

# Letters of what a tool returns or a user brings along, unless a description says otherwise.
LETTERS = 4000, 6000
# Letters of a standing text: about what project instructions have.
STANDING = 1200
# Every third record is flawed at first.
FLAWED = 3


@dataclasses.dataclass
class Setting:
    """Where a client runs: `mode` is None without a gateway; `window` is told to the gateway, and the provider takes that less the
    room for an answer."""

    name: str
    mode: str | None = None
    window: int | None = None
    program: str | None = None


@dataclasses.dataclass
class Result:
    """What came of a run."""

    client: str
    format: str
    setting: str
    window: int | None = None
    program: str | None = None
    done: int = 0
    calls: int = 0
    requests: int = 0
    largest: int = 0
    tokens: int = 0
    cost: float = 0.0
    cached: float = 0.0
    long: int = 0
    illegal: int = 0
    own: int = 0
    sessions: int | None = None
    compactions: int | None = None
    epochs: int | None = None
    # The share of the cost that the gateway says it saved, if it says so.
    claimed: float | None = None
    causes: dict = dataclasses.field(default_factory=dict)
    # Standing texts that some request lacked, with how many requests of all did.
    lost: dict = dataclasses.field(default_factory=dict)
    # Its own bill differs from run to run.
    restless: bool = False
    head: int = 0
    took: float = 0.0
    notes: list = dataclasses.field(default_factory=list)
    missed: list = dataclasses.field(default_factory=list)


class Task:
    """What every run of a client does: prompts, the steps of the model, the notes to be read and the standing texts."""

    def __init__(self, description, calls):
        self.calls, self.answers = calls, description.answers
        writer = texts.Writer(description.name)
        self.pages = [writer.page(writer.random.randrange(*(description.letters or LETTERS))) for _ in range(calls)]
        self.standing = {name: standing(name) for name in description.standing}
        self.patterns = description.patterns
        self.prompts, self.steps = self.several(description.prompts) if description.answers in ("tools", "code") else self.one_by_one()

    def several(self, count):
        """A few prompts, each of which takes many calls."""
        prompts, steps = [], []
        size = -(-self.calls // count)
        for first in range(0, self.calls, size):
            numbers = range(first, min(first + size, self.calls))
            prompts.append(f"Read parts {numbers[0]} to {numbers[-1]} of the notes in notes/, one after another, then say that you are done.")
            steps += [Read(number) for number in numbers] + [Finish()]
        return prompts, steps

    def one_by_one(self):
        """A prompt for each part, which brings the part along."""
        prompts, steps = [], []
        for number, page in enumerate(self.pages):
            prompts.append(f"This is part {number}. Set value_{number} by it, or record it.\n\n{page}")
            flawed = self.answers == "records" and number % FLAWED == FLAWED - 1
            steps += [Flawed(number)] * flawed + [Read(number)]
        return prompts, steps

    def lay_out(self, work):
        (work / "notes").mkdir()
        for number, page in enumerate(self.pages):
            (work / "notes" / f"part-{number}.md").write_text(page + "\n")


def standing(name):
    """A text of rules that has to reach the model with every request, and is like no other."""
    writer = texts.Writer(f"standing {name}")
    return f"Rules of the house, by {name}:\n- Sign with {writer.name()}.\n{writer.page(STANDING)}"


def run(description, form, task, setting, folder):
    """Runs a client once, and counts."""
    begun = time.monotonic()
    result = Result(description.name, form, setting.name, setting.window, setting.program, calls=task.calls, restless=description.restless)
    script = provider.Provider(task.answers, 4 * len(task.steps) + 20)
    script.steps = list(task.steps)
    script.limit = setting.window - description.room(form) if setting.window else 10**9
    upstream = Upstream(script)
    place = folder / f"{description.name}-{form}-{setting.name}".replace(" ", "-")
    place.mkdir()
    stack, address = chain(description, upstream.url, setting, place)
    try:
        client = description.client(form, place / "client", address, task.standing)
        script.pace = client.pace
        task.lay_out(client.work)
        prompts = getattr(client, "prompts", lambda every: [client.prompt(words) for words in every])
        codes = [code for code in prompts(task.prompts) if code]
        result.notes += [f"ended with {code}" for code in codes]
        result.done = sum((client.work / f"read-{number}").exists() for number in range(task.calls))
        requests = [request for request in upstream.take() if request.form]
        keep(place, requests)
        count(result, requests, task, script)
        gateway = next((one for one in stack if isinstance(one, Gateway)), None)
        if gateway:
            recorded(result, gateway)
    finally:
        for one in stack:
            if one.stop():
                result.notes.append(f"{type(one).__name__.lower()} did not end well: see {one.log.name}")
        upstream.close()
    result.took = round(time.monotonic() - begun, 1)
    return result


def chain(description, address, setting, place):
    """What stands between the client and the provider, the outermost first, and the address that the client asks."""
    stack, proxy = [], description.proxy
    if proxy and proxy["place"] == "behind":
        stack.insert(0, Proxy(description, place, address))
        address = stack[0].url
    if setting.mode:
        flags = ["--mode", setting.mode]
        flags += ["--window", str(setting.window)] if setting.window else []
        stack.insert(0, Gateway(place, address, address, *flags, executable=setting.program))
        address = stack[0].url
    if proxy and proxy["place"] == "before":
        stack.insert(0, Proxy(description, place, address))
        address = stack[0].url
    return stack, address


def keep(place, requests):
    """What the provider saw, for whoever asks why."""
    with open(place / "requests.jsonl", "w") as file:
        for request in requests:
            about = {"number": request.number, "path": request.path, "purpose": request.purpose, "refused": request.refused}
            about |= {"why": request.why, "bill": dataclasses.asdict(request.bill), "headers": request.headers}
            file.write(json.dumps({**about, "body": request.json, "answer": str(request.answer or request.reply)}) + "\n")


def count(result, requests, task, script):
    taken = [request for request in requests if not request.refused]
    result.requests = len(requests)
    result.tokens = sum(request.bill.tokens for request in taken)
    result.largest = max((request.bill.tokens for request in taken), default=0)
    result.cost = round(sum(request.bill.cost() for request in taken), 1)
    result.cached = round(sum(request.bill.read for request in taken) / max(result.tokens, 1), 4)
    result.long = sum(request.refused == "long" for request in requests)
    result.illegal = sum(request.refused == "illegal" for request in requests)
    result.own = sum(request.purpose == "compaction" for request in requests)
    result.notes += [f"request {request.number} was refused: {request.why}" for request in requests if request.refused == "illegal"][:2]
    turns = [request for request in taken if request.purpose == "turn"]
    result.head = turns[0].bill.tokens if turns else 0
    if script.steps:
        result.notes.append(f"{len(script.steps)} steps were never asked for")
    if script.surplus:
        result.notes.append(f"{script.surplus} turns more than the task has")
    for name, text in task.standing.items():
        lacking = sum(not any(text in one for one in provider.strings(request.json)) for request in turns)
        if lacking:
            result.lost[name] = lacking
    for name, pattern in task.patterns.items():
        lacking = sum(not any(re.search(pattern, one) for one in provider.strings(request.json)) for request in turns)
        if lacking:
            result.lost[name] = lacking


def recorded(result, gateway):
    """What the gateway says that it did."""
    sessions = gateway.ask("sessions", "--json")
    result.sessions = len(sessions)
    result.compactions = sum(one["compactions"] for one in sessions)
    rows = {}
    for session in sessions:
        [shown] = gateway.ask("show", session["id"], "--json")
        for thread in shown["threads"]:
            # A fork tells its parent's calls again.
            rows |= {(row["thread"], row["call"]): row for row in gateway.ask("calls", session["id"], "--thread", thread["id"], "--json")}
    causes = collections.Counter(row["cause"] for row in rows.values() if row["cause"])
    result.causes = dict(causes)
    with urllib.request.urlopen(f"{gateway.url}/epitome/savings", timeout=30) as told:
        result.claimed = (json.load(told).get("estimated") or {}).get("point")
    result.epochs = len({(row["thread"], row["epoch"]) for row in rows.values()}) if rows else None
