"""What the cases of every SDK share: an image, a system prompt, and how a case is run and told of."""
import json, sys, traceback

# A PNG of one pixel.
IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
IMAGE_URL = "https://example.invalid/picture.png"
SYSTEM = "You are terse. Ünïcode stays: \u2028 \U0001f642"


def run(cases, client):
    """Runs the cases that were asked for, or all but those that need a real model, and prints what each gave back."""
    wanted = sys.argv[2:] or [case for case in cases if not case.startswith("real ")]
    for case in wanted:
        try:
            line = {"case": case, "value": cases[case](client(case))}
        except Exception:
            line = {"case": case, "problem": traceback.format_exc()}
        print(json.dumps(line), flush=True)


def check(value, expect):
    if value != expect:
        raise AssertionError(f"{value!r} is not {expect!r}")
