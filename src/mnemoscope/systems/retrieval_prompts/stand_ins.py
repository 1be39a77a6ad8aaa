"""A stand-in for a language model that knows the answers, and gives the right one with a probability of our choice."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from mnemoscope import generator
from mnemoscope.systems.retrieval_prompts.questions import FORMULATIONS, Question
from mnemoscope.systems.retrieval_prompts.scoring import Answered, Sampling

_SURE = math.log(0.9)
"""Log-probability of the answer that it gives."""


@dataclass(frozen=True, kw_only=True)
class StandIn:
    """Right with a probability, and otherwise any of the other acceptable answers; what it does not know it guesses."""

    share: float
    """Of questions that it answers rightly, in expectation."""
    knows: tuple[str, ...] = tuple(FORMULATIONS)
    """Formulations."""
    seed: int = 0
    n_parameters: float = 1e10
    """As many as it claims to have."""

    def answers(self, questions: Sequence[Question], sampling: Sampling | None = None) -> Iterator[list[Answered]]:
        """All answers at once; a sampled one is the same, at the first try."""
        yield [self._answered(question, sampling is not None) for question in questions]

    def _answered(self, question: Question, sampled: bool) -> Answered:
        named = (question.formulation, str(question.difficulty), question.seed, question.number)
        stream = generator(self.seed, "stand-in", *named)
        share = self.share if question.formulation in self.knows else 1 / len(question.acceptable)
        others = [answer for answer in question.acceptable if answer != question.correct]
        right = bool(torch.rand(1, generator=stream) < share)
        other = others[int(torch.randint(len(others), (1,), generator=stream))]
        said = question.correct if right else other
        rest = math.log(0.1 / len(others))
        log_probs = tuple(_SURE if answer == said else rest for answer in question.acceptable)
        drawn = {"sampled": said, "tries": 1} if sampled else {}
        return Answered(question=question, log_probs=log_probs, **drawn)
