"""Text that nobody has read before, the same for the same seed: what commands print, and what is to be remembered of it."""
import random

SUBJECTS = "the parser;the depot at Marlow;a worker;the second index;the ledger;this build;the reader;our cache;the queue;a lease"
VERBS = "keeps;drops;counts;renames;waits for;returns;compares;forgets;opens;closes;prints;retries"
OBJECTS = "every parcel;the last row;its own lock;an empty page;two handles;the header;a stale lease;the socket;one more item"
CIRCUMSTANCES = "at noon;after a restart;on the slow path;without a reason;when the disk is full;in release builds;once more"
STEMS = "amber;basalt;cedar;delta;ember;flint;gravel;harbour;indigo;juniper;kelp;linen;marble;nettle;ochre;pebble;quartz;reed"


class Writer:
    """Writes lines from a seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, words):
        return self.random.choice(words.split(";"))

    def name(self):
        return f"{self.pick(STEMS)}_{self.pick(STEMS)}_{self.random.randrange(100)}"

    def sentence(self):
        words = [self.pick(SUBJECTS), self.pick(VERBS), self.pick(OBJECTS), self.pick(CIRCUMSTANCES)]
        return " ".join(words).capitalize() + "."

    def line(self):
        """As it stands in a log, a source or a note."""
        kind = self.random.randrange(4)
        if kind == 0:
            return f"src/{self.pick(STEMS)}/{self.name()}.rs:{self.random.randrange(900)}: {self.sentence()}"
        if kind == 1:
            return f"fn {self.name()}(count: usize) -> usize {{ count * {self.random.randrange(50)} }}"
        return " ".join(self.sentence() for _ in range(kind))

    def page(self, letters):
        """About so many letters."""
        lines, length = [], 0
        while length < letters:
            lines.append(self.line())
            length += len(lines[-1]) + 1
        return "\n".join(lines)
