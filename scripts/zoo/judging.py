"""Windows that follow from a direct run, and what a run missed beside it."""
import dataclasses, json, pathlib

import visit

# The largest direct request fills so much of the window in which all fits.
FILLED = 0.8
# What clients change by themselves between two runs: clocks, ids.
SLACK = 1.01
POINTS = 0.10
# The settings with a gateway.
THROUGH = ["record", "fit", "tight"]


def fit(direct, room):
    """A window that holds the largest direct request by a quarter more, beside the room for an answer."""
    return round(direct.largest / FILLED) + room


def tight(direct, room, share):
    """A window that holds this share of what the task adds."""
    return round((direct.head + (direct.largest - direct.head) * share) * 1.1) + room


def missed(result, direct):
    """What must hold and does not, each in a few words."""
    return list(each(result, direct))


def each(result, direct):
    if result.done < result.calls:
        yield f"{result.calls - result.done} parts undone"
    if result.illegal:
        yield f"{result.illegal} illegal"
    if direct is None:
        return
    if result.sessions != 1:
        yield f"{result.sessions} sessions"
    for name, requests in result.lost.items():
        more = requests - direct.lost.get(name, 0)
        if more > 0:
            yield f"{name} lost in {more} requests"
    if not result.restless:
        yield from billed(result, direct)
    if result.own > direct.own:
        yield f"compacted by itself {result.own} times"
    own = sum(times for cause, times in result.causes.items() if "client" not in cause)
    if own > (result.compactions or 0):
        yield f"{own} new epochs of {result.compactions} compactions"
    if result.setting == "tight" and not result.compactions:
        yield "never compacted"


def billed(result, direct):
    """What the two bills say."""
    if result.cost > direct.cost * SLACK:
        yield f"cost {result.cost / direct.cost - 1:+.0%}"
    if result.setting != "tight" and result.cached < direct.cached - POINTS:
        yield f"cached {100 * (result.cached - direct.cached):+.0f} points"
    if result.claimed is not None and result.claimed > 1 - result.cost / direct.cost + POINTS:
        yield f"claims to save {result.claimed:.0%}"


def head(programs):
    told = ["client", "format", "setting", *(["program"] if len(programs) > 1 else []), "window", "done", "requests", "long", "illegal"]
    return [*told, "sessions", "compactions", "epochs", "cached", "cost", "lost", "took", "verdict"]


def row(result, programs):
    told = [result.client, result.format, result.setting]
    if len(programs) > 1:
        told.append(pathlib.Path(result.program).parent.name if result.program else "-")
    return [*told, *numbers(result)]


def numbers(result):
    lost = ", ".join(f"{name} {requests}" for name, requests in result.lost.items())
    return [
        *[result.window or "-", f"{result.done}/{result.calls}", result.requests, result.long, result.illegal],
        *[dash(result.sessions), dash(result.compactions), dash(result.epochs)],
        *[f"{result.cached:.0%}", round(result.cost), lost or "-", f"{result.took:.0f} s"],
        "; ".join(result.missed + result.notes) or "yes",
    ]


def line(result, direct):
    """The same while it runs, with the direct run beside it."""
    told = [result.client, result.format, result.setting, *numbers(result)]
    return [*told, f"cost {result.cost / direct.cost:.2f} of direct"] if direct and direct.cost else told


def markdown(path):
    """The table of a file of results, a row for each client and format, judged as results are judged now."""
    rows, known = {}, {field.name for field in dataclasses.fields(visit.Result)}
    for line in pathlib.Path(path).read_text().splitlines():
        result = visit.Result(**{name: value for name, value in json.loads(line).items() if name in known})
        # The newest run of each setting counts.
        rows.setdefault((result.client, result.format), {})[result.setting] = result
    print("| client | format | direct: cached | sessions: record · fit · tight | fit: compactions, epochs, cached, cost | tight: the same | missed |")
    print("|---|---|---|---|---|---|---|")
    for (client, form), settings in sorted(rows.items()):
        direct = settings["direct"]
        sessions = " · ".join(str(settings[name].sessions) for name in THROUGH if name in settings)
        cells = " | ".join(short(settings[name], direct) if name in settings else "-" for name in THROUGH[1:])
        found = {name: missed(settings[name], direct) for name in THROUGH if name in settings}
        told = "; ".join(f"{name}: {', '.join(why)}" for name, why in found.items() if why)
        print(f"| {client} | {form} | {direct.cached:.0%} | {sessions} | {cells} | {told or 'nothing'} |")


def short(result, direct):
    cost = result.cost / direct.cost if direct.cost else 0
    return f"{result.compactions}, {result.epochs}, {result.cached:.0%}, ×{cost:.2f}"


def dash(value):
    return "-" if value is None else value
