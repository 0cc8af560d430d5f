"""What every driver in Python knows: where to ask, which format and model, what to say, and the tool that reads notes."""
import json, os, pathlib

BASE, FORM, MODEL = os.environ["ZOO_BASE"], os.environ["ZOO_FORM"], os.environ["ZOO_MODEL"]
SYSTEM, ANSWER, KEY = os.environ["ZOO_SYSTEM"], int(os.environ["ZOO_ANSWER"]), "sk-dummy"
PROMPTS = json.loads(pathlib.Path(os.environ["ZOO_PROMPTS"]).read_text())
# Where OpenAI's SDKs look: they want the version in the address, Anthropic's do not.
OPENAI = f"{BASE}/v1"
# More steps than any prompt of the task takes.
STEPS = 200


def read_part(number: int) -> str:
    """Read one part of the notes.

    Args:
        number: The part's number, from 0.
    """
    text = pathlib.Path(f"notes/part-{number}.md").read_text()
    done(number)
    return text


def done(number):
    """Leaves a sign that a part of the task is done."""
    pathlib.Path(f"read-{number}").touch()
