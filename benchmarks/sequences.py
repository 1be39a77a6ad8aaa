"""Sequences of in-context bigrams, all steps of a batch at once, against a loop with a choice for every token."""

from statistics import median

import numpy as np

from mnemoscope.core.batch import Batch
from mnemoscope.core.seeding import generator
from mnemoscope.systems.in_context_bigrams.tasks import InContextBigrams
from timing import Contender, Figure, duration, interleave, ratio

BATCH = 512
"""Sequences at once, as in a batch of the published recipe."""
ONE_BY_ONE = 4
"""Sequences of one portion of the loop."""
AIM = 50.0


class TokenByToken:
    """A generator of single sequences in NumPy: triggers, outputs, then token after token."""

    def __init__(self, task: InContextBigrams):
        self.task, self.rng = task, np.random.default_rng(0)
        self.unigram, self.transitions = task.bigrams.unigram.numpy(), task.bigrams.transitions.numpy()

    def sequence(self) -> list[int]:
        """One sequence, its last target included."""
        task, rng = self.task, self.rng
        triggers = rng.choice(task.d_vocab, task.n_triggers, replace=False, p=self.unigram)
        output = {int(trigger): int(rng.integers(task.d_vocab)) for trigger in triggers}
        tokens = [int(rng.choice(task.d_vocab, p=self.unigram))]
        for _ in range(task.length):
            last = tokens[-1]
            tokens.append(output[last] if last in output else int(rng.choice(task.d_vocab, p=self.transitions[last])))
        return tokens

    def __call__(self) -> float:
        for _ in range(ONE_BY_ONE):
            self.sequence()
        return ONE_BY_ONE


class AtOnce:
    """`sample` of the task."""

    def __init__(self, task: InContextBigrams, n: int):
        self.task, self.n, self.stream = task, n, generator(0, "benchmark")

    def batch(self) -> Batch:
        return self.task.sample(self.n, split="train", generator=self.stream)

    def __call__(self) -> float:
        self.batch()
        return self.n


def generation(repetitions: int) -> list[Figure]:
    """Time a sequence of 256 tokens with 5 random triggers, in batches of the published and the quick recipe."""
    task = InContextBigrams()
    figures = []
    for n, aim in ((BATCH, AIM), (32, None)):
        contenders: dict[str, Contender] = {"rival": TokenByToken(task), "ours": AtOnce(task, n)}
        seconds = interleave(contenders, repetitions)
        value, spread = ratio(seconds["rival"], seconds["ours"])
        note = f"ours {duration(median(seconds['ours']))} a sequence, rival {duration(median(seconds['rival']))}"
        name = f"batch of {n} / token by token"
        figures.append(Figure(group="sequences", name=name, value=value, unit="x", spread=spread, aim=aim, note=note))
    return figures
