"""A session that an agent goes on with after `epitome resume`: how each agent is told to, and what its first request must hold."""
import json, os, pathlib, re, subprocess

import agents, history, legality
from answers import MESSAGES, RESPONSES

# The budget of the agent's first request, and a prompt that goes on.
BUDGET, GO_ON = 60_000, "GO-ON: say in one word how it stands."
# The words of a user that are looked for: long enough to be his, short enough to stand on one line.
LETTERS = 40
# What our own readers say of a session is asked of the program in this form.
EXPORT = ["--format", "jsonl"]


def environment(agent):
    """What an agent of ours runs in: its own home, its programs, and nothing else."""
    paths = f"{pathlib.Path(agent.program).parent}:/usr/local/bin:/usr/bin:/bin:{agents.node_folder()}"
    data = {"EPITOME_DB": str(agent.home / "epitome.db")}
    return {"HOME": str(agent.home), "PATH": paths, "TERM": "dumb", **agent.environment(), **agent.more, **data}


def epitome(program, agent, *words):
    """One command of ours, in the agent's home and folder."""
    command = [program, *map(str, words), "--json"]
    done = subprocess.run(command, cwd=agent.work, env=environment(agent), capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def go_on(agent, kind, session):
    """Goes on with a session, without a terminal."""
    model = agents.MODELS[agent.form]
    words = {
        "claude": ["-p", GO_ON, "--resume", session, "--model", model, "--output-format", "json"],
        "codex": ["exec", "resume", session, "--json", "--skip-git-repo-check", GO_ON],
        "opencode": ["run", "--session", session, "--format", "json", GO_ON],
        "pi": ["-p", "--session", session, "--provider", "gateway", "--model", model, GO_ON],
        "goose": ["run", "--resume", "--session-id", session, "-t", GO_ON],
    }[kind]
    with open(agent.log, "ab") as log:
        log.write(f"\n$ {words}\n".encode())
        log.flush()
        run = {"cwd": agent.work, "env": environment(agent), "stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        return subprocess.run([agent.program, *words], timeout=agent.patience, **run).returncode


def facts(program, agent, file):
    """What was said in a session since its agent compacted it itself: the users' messages, and the last answer."""
    line = epitome(program, agent, "import", file)[0]
    lines = export(program, agent, line["session"])
    users, before, answer = [], [], ""
    for fact in lines:
        text = "\n".join(part.get("text", "") for part in fact.get("parts", []) if part.get("type") == "text").strip()
        if fact["kind"] == "user_said" and words_of_a_person(text):
            users.append(text)
        elif fact["kind"] == "assistant_said" and text:
            answer = text
        elif fact["kind"] == "compacted":
            users, before = [], users or before
    # A compaction in the middle of a task leaves the task before it.
    return users or before[-1:], answer


def export(program, agent, session):
    """The facts of the thread that a session goes on with."""
    done = subprocess.run(
        [program, "export", session, *EXPORT], cwd=agent.work, env=environment(agent), capture_output=True, text=True, check=True
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    found = [row.get("fact") or row.get("event", {}).get("fact") for row in rows]
    return [fact for fact in found if fact]


def words_of_a_person(text):
    """Whether a message is a person's: agents speak in tags and brackets, and of themselves."""
    return bool(text) and text[0] not in "<[" and not text.startswith(("This session is being", "# AGENTS", "Caveat:", "Ran `"))


def needle(text):
    """A piece of a text that stands in one line, to be looked for in a request."""
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]
    return max(lines, key=lambda line: min(len(line), LETTERS))[:LETTERS] if lines else ""


class Check:
    """The first request of an agent that goes on, held against the session that it goes on with."""

    def __init__(self, agent, request, users, answer):
        self.lines = history.of_request(request.form, request.json)
        self.text = re.sub(r"\s+", " ", "\n".join(what for _, what in self.lines))
        self.breach = legality.breach(request.form, request.json)
        self.tokens = len(request.body) // 4
        said = [needle(text) for text in users]
        self.users = sum(text in self.text for text in said), len(said)
        self.task = not said or said[-1] in self.text
        self.newest = not answer or needle(answer) in self.text
        self.turn = GO_ON in self.text

    def row(self):
        held = self.breach is None and self.tokens <= BUDGET and self.task and self.newest and self.turn
        # Words of users that are no task any more may be told shorter: most of them must be there.
        held = held and self.users[0] * 2 >= self.users[1]
        told = [f"{self.tokens:,}", f"{self.users[0]}/{self.users[1]}", yes(self.task), yes(self.newest)]
        return [yes(self.breach is None), *told, yes(held)], self.breach


def yes(value):
    return "yes" if value else "no"
