"""Text that varies as code and prose do: lines of Python's own library in random order, with names that nobody used before.

A sentence that is repeated flatters whoever counts tokens or compresses: each of its words was met a moment ago.
"""
import functools, pathlib, random, sysconfig


@functools.cache
def lines():
    """Lines of source and documentation, with their indentation."""
    found = []
    for path in sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py")):
        found += [line for line in path.read_text(errors="replace").split("\n") if len(line.strip()) > 8]
    return found


def text(seed, letters):
    """About so many letters, the same for the same seed."""
    rng = random.Random(seed)
    pool, chosen, length = lines(), [], 0
    while length < letters:
        line = rng.choice(pool)
        # One line in four has a name and a number of its own.
        if rng.random() < 0.25:
            line += f"  # {rng.choice(pool).split()[0].strip('_.:()')}_{rng.randrange(1 << 24):x} {rng.randrange(1 << 20)}"
        chosen.append(line)
        length += len(line) + 1
    return "\n".join(chosen)
