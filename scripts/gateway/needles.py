"""A session with facts in it: what a user says and what tools give, turn by turn, and which of it is needed again and when.

The same seed is the same session, whoever manages its context. Facts are of four kinds, as they stand in real results: codes,
paths, settings and plain numbers in prose. A later request of the user needs some, asks for them by what they belong to, and
never says them.
"""
import dataclasses

import texts

# A user speaks, then the tool loop runs for some turns.
LOOP = 5
# So many facts are asked for each time: some that a user said, some that results held.
ASKED = {"user": 1, "result": 3}


@dataclasses.dataclass
class Fact:
    """`literal` is what must still be there; `subject` is what it is asked for by; `source` is who said it, `planted` in which turn."""

    subject: str
    literal: str
    text: str
    source: str
    planted: int


@dataclasses.dataclass
class Turn:
    """What comes before a call of the model (`user`, or the results of the calls before), and what the model is made to call then."""

    user: str | None
    call: str | None
    result: str | None
    needs: list


def session(seed, turns):
    """The turns, in order."""
    plan = Plan(seed)
    return [plan.turn(number, turns) for number in range(turns)]


class Plan:
    def __init__(self, seed):
        self.writer, self.facts, self.made = texts.Writer(f"needles {seed}"), [], 0

    def turn(self, number, turns):
        begins = number % LOOP == 0
        user, needs = self.user(number) if begins else (None, [])
        if number % LOOP == LOOP - 1 or number == turns - 1:
            return Turn(user, None, None, needs)
        path = f"src/{self.writer.name()}.rs"
        return Turn(user, path, self.result(number), needs)

    def user(self, number):
        needs = []
        for source, most in ASKED.items():
            old = [fact for fact in self.facts if fact.source == source]
            needs += self.writer.random.sample(old, min(most, len(old)))
        fact = self.plant("user", number)
        asks = " ".join(f"You will need {fact.subject}." for fact in needs)
        words = f"Step {number // LOOP + 1}. {self.writer.sentence()} {fact.text} {asks} {self.writer.sentence()}"
        return " ".join(words.split()), needs

    def result(self, number):
        """Between 100 and 400 tokens, about half of them with a fact in some line."""
        lines = self.writer.page(self.writer.random.randrange(400, 1600)).split("\n")
        if self.writer.random.random() < 0.6:
            lines.insert(self.writer.random.randrange(len(lines) + 1), self.plant("result", number).text)
        return "\n".join(lines)

    def plant(self, source, number):
        kind, digits = self.made % 4, self.writer.random.randrange(10_000, 99_999)
        self.made += 1
        place = f"{self.writer.pick(texts.STEMS)} {self.writer.pick(texts.STEMS)} {self.made}"
        if kind == 0:
            subject, literal = f"the ticket of {place}", f"QX-{digits}"
            text = f"The ticket of {place} is {literal}."
        elif kind == 1:
            subject, literal = f"the file of {place}", f"crates/{self.writer.pick(texts.STEMS)}/src/part_{digits}.rs"
            text = f"The file of {place} is {literal}."
        elif kind == 2:
            subject, literal = f"the limit of {place}", f"retry_after_ms = {digits}"
            text = f"The limit of {place} is set as `{literal}`."
        else:
            subject, literal = f"what was counted at {place}", f"{digits} parcels"
            text = f"At {place} they counted {literal} before noon."
        fact = Fact(subject, literal, text, source, number)
        self.facts.append(fact)
        return fact
