"""Windows that follow from a direct run, and what a run missed beside it."""
import json, pathlib

# The largest direct request fills so much of the window in which all fits.
FILLED = 0.8
# Of what the task adds to the first request, so much finds room in the tight window.
ROOM = 0.45
# What clients change by themselves between two runs: clocks, ids.
SLACK = 1.01
POINTS = 0.10


def fit(direct, room):
    """A window that holds the largest direct request by a quarter more, beside the room for an answer."""
    return round(direct.largest / FILLED) + room


def tight(direct, room):
    """A window that holds less than half of what the task adds."""
    return round((direct.head + (direct.largest - direct.head) * ROOM) * 1.1) + room


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
    if result.cost > direct.cost * SLACK:
        yield f"cost {result.cost / direct.cost - 1:+.0%}"
    if result.setting != "tight" and result.cached < direct.cached - POINTS:
        yield f"cached {100 * (result.cached - direct.cached):+.0f} points"
    if result.claimed is not None and result.claimed > 1 - result.cost / direct.cost + POINTS:
        yield f"claims to save {result.claimed:.0%}"
    if result.own > direct.own:
        yield f"compacted by itself {result.own} times"
    if result.setting == "tight" and not result.compactions:
        yield "never compacted"


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
    """The table of a file of results, a row for each client and format."""
    rows = {}
    for line in pathlib.Path(path).read_text().splitlines():
        result = json.loads(line)
        # The newest run of each setting counts.
        rows.setdefault((result["client"], result["format"]), {})[result["setting"]] = result
    print("| client | format | direct: cached | sessions, record · fit · tight | fit: compactions, epochs, cached, cost | tight: the same | missed |")
    print("|---|---|---|---|---|---|---|")
    for (client, form), settings in sorted(rows.items()):
        direct = settings["direct"]
        sessions = " · ".join(str(settings[name]["sessions"]) for name in ("record", "fit", "tight") if name in settings)
        cells = [short(settings[name], direct) if name in settings else "-" for name in ("fit", "tight")]
        every = [f"{name}: {', '.join(result['missed'])}" for name, result in settings.items() if result["missed"]]
        print(f"| {client} | {form} | {direct['cached']:.0%} | {sessions} | {cells[0]} | {cells[1]} | {'; '.join(every) or 'nothing'} |")


def short(result, direct):
    cost = result["cost"] / direct["cost"] if direct["cost"] else 0
    return f"{result['compactions']}, {result['epochs']}, {result['cached']:.0%}, ×{cost:.2f}"


def dash(value):
    return "-" if value is None else value
