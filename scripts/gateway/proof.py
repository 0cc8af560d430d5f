"""The audit rows of a gateway beside what the provider saw: every call made again, and every body by its hash."""
import dataclasses


@dataclasses.dataclass
class Proof:
    """`calls` audit rows, of which `same` came out as they were sent; `sent` bodies, of which `known` have a row of that hash."""

    calls: int = 0
    same: int = 0
    sent: int = 0
    known: int = 0
    threads: list = dataclasses.field(default_factory=list)
    rows: list = dataclasses.field(default_factory=list)
    wrong: list = dataclasses.field(default_factory=list)

    def holds(self):
        return 0 < self.calls == self.same and 0 < self.sent == self.known and not self.wrong


def of(gateway, sessions, requests, digest):
    """About these sessions, and the requests that should be theirs. `digest` is the hash of a body."""
    proof = Proof()
    for session in sessions:
        [shown] = gateway.ask("show", session["id"], "--json")
        proof.threads += shown["threads"]
        for thread in shown["threads"]:
            take(gateway, proof, session["id"], thread["id"])
    if not proof.rows:
        proof.wrong.append("there are no audit rows")
        return proof
    hashes = {row["hash"] for row in proof.rows}
    bodies = {digest(request.body): request for request in requests}
    for found, request in bodies.items():
        proof.sent += 1
        proof.known += found in hashes
        if found not in hashes:
            proof.wrong.append(f"request {request.number} ({len(request.body)} bytes, {request.purpose}) has no audit row")
    unseen = [row for row in proof.rows if row["hash"] not in bodies]
    proof.wrong += [f"call {row['call']} of {row['thread']} has a hash that the provider never saw" for row in unseen]
    return proof


def take(gateway, proof, session, thread):
    rows = gateway.ask("calls", session, "--thread", thread, "--json")
    if not rows:
        return
    # A fork tells its parent's calls again.
    known = {(row["thread"], row["call"]) for row in proof.rows}
    new = [row for row in rows if (row["thread"], row["call"]) not in known]
    [again] = gateway.ask("replay-call", session, "--thread", thread, "--all", "--json", codes=(0, 1))
    wrong = {one["call"]: one["why"] for one in again["wrong"]}
    proof.rows += new
    proof.calls += len(new)
    proof.same += sum(row["call"] not in wrong for row in new)
    proof.wrong += [f"call {call}: {why}" for call, why in wrong.items()]
    if again["calls"] != len(rows):
        proof.wrong.append(f"{again['calls']} calls were made again, not {len(rows)}")
