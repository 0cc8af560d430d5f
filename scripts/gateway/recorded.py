"""What was recorded of an agent, beside what the provider saw and answered.

The provider's side is cut into stretches: within one, each request repeats the one before and its answer, then adds to it. A
client's own compaction ends a stretch. The recorded side is cut at its compactions. Stretch by stretch both must tell the same.
"""
import dataclasses

import history

# Requests beside the conversation have threads of their own, under these names.
ASIDE = ("title", "compaction")
HEAD = ["sessions", "threads", "compacts", "recognised", "equal"]


def row(gateway, run, known):
    """The columns about one agent; what is wrong with it goes into its notes. `known` are the sessions of those before it."""
    sessions = [one for one in gateway.ask("sessions", "--json") if one["id"] not in known]
    known |= {one["id"] for one in sessions}
    if len(sessions) != 1:
        run.notes.append(f"{len(sessions)} sessions: {[one['title'] for one in sessions]}")
        return [len(sessions), "-", "-", "no", "no"]
    session, told = sessions[0], lines(run)
    [shown] = gateway.ask("show", session["id"], "--json")
    made = len(told[-1]) - 1
    problems = [*misplaced(session, shown["threads"], run, told, made)]
    differences = [*different(gateway, shown, run, told)]
    run.notes += problems + differences
    compactions = f"{session['compactions']}/{made}"
    return [1, len(shown["threads"]), compactions, "no" if problems else "yes", "no" if differences else "yes"]


def misplaced(session, threads, run, told, made):
    """What was not recognised."""
    for purpose in ASIDE:
        asked = sum(request.purpose == purpose for request in run.requests)
        found = sum(thread["name"] == purpose for thread in threads)
        if asked != found:
            yield f"{found} threads for a {purpose}, not {asked}"
    kinds = [thread["start"]["type"] for thread in threads if thread["name"] not in ASIDE]
    wanted = {"root": 1, "fork": len(told) - 1, "spawned": len(run.subtasks)}
    for kind, number in wanted.items():
        if kinds.count(kind) != number:
            yield f"{kinds.count(kind)} threads of kind {kind}, not {number}"
    if session["compactions"] != made:
        yield f"{session['compactions']} compactions, not {made}"


def different(gateway, shown, run, told):
    """Where the record and the provider's side tell of different things."""
    recorded = {thread["id"]: pieces(gateway, shown, thread["id"]) for thread in shown["threads"]}
    yield from compare("now", recorded[shown["thread"]], told[-1], run)
    subagents = [cut([one for one in run.requests if answered(one) and one.task == task])[-1] for task in sorted(run.subtasks)]
    for number, line in enumerate([*told[:-1], *subagents]):
        if all([*compare("", own, line, run)] for own in recorded.values()):
            yield f"no thread tells what the provider saw {'of a subagent' if number >= len(told) - 1 else 'and was left'}"


def pieces(gateway, shown, thread):
    """A recorded thread, cut at its compactions."""
    every = [[]]
    for event in gateway.ask("export", shown["session"]["id"], "--thread", thread, "--format", "jsonl"):
        if event["fact"]["kind"] == "compacted":
            every.append([])
        else:
            every[-1].append(event["fact"])
    return [history.of_facts(facts) for facts in every]


@dataclasses.dataclass
class Stretch:
    """What the provider saw and answered between two compactions; `opened` lines came with its first request."""

    lines: list
    opened: int


def lines(run):
    """The conversation of the agent itself, as the provider saw it: each line of it that the agent followed, the newest last."""
    return cut([request for request in run.requests if answered(request) and request.task not in run.subtasks])


def answered(request):
    return request.purpose == "turn" and request.answer


def cut(requests):
    """A history that does not go on where the last one ended is a compaction if it begins anew. If it begins the same, the agent
    went back: pi forgets what came after an overflow when it is resumed."""
    every = [[]]
    for request in requests:
        seen = history.of_request(request.form, request.json)
        line = every[-1]
        if not line or seen[:1] != line[-1].lines[:1]:
            line.append(Stretch(seen, len(seen)))
        elif seen[: len(line[-1].lines)] != line[-1].lines:
            every.append([*line[:-1], Stretch(seen, line[-1].opened)])
        every[-1][-1].lines = history.tidy(seen + history.of_answer(request.answer))
    return every


def compare(name, recorded, told, run):
    """Each difference in words."""
    if len(recorded) != len(told):
        yield f"{name}: {len(recorded)} pieces, the provider saw {len(told)}"
        return
    for number, (ours, theirs) in enumerate(zip(recorded, told)):
        wanted = theirs.lines
        if number:
            # What a compaction left stands before it in the log: only what came since has to be told again. Its first line may
            # have been joined to what was left.
            wanted = wanted[max(0, min(len(wanted) - len(ours), theirs.opened)) :]
            if ours and wanted and ours[0][0] == wanted[0][0] and wanted[0][1].endswith("\n" + ours[0][1]):
                wanted = [ours[0], *wanted[1:]]
        yield from differs(f"{name} {number + 1}", ours, wanted, run)


def differs(where, ours, wanted, run):
    for place, line in enumerate(wanted):
        if place >= len(ours) or ours[place] != line:
            said = ours[place] if place < len(ours) else "nothing"
            yield f"{where}, line {place + 1} of {len(wanted)}: recorded {short(said)}, seen {short(line)}"
            return
    # A request that was refused, or that asked for a summary, shows a little more than what was answered.
    more = [line for line in ours[len(wanted) :] if line not in run.shown()]
    if more:
        yield f"{where}: recorded beside it {short(more[0])}"


def short(line):
    text = repr(line)
    return text if len(text) < 90 else text[:60] + "…" + text[-25:]
