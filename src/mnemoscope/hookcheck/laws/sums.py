"""Sums and products: each activation is what the formula of its part gives from the activations before it."""

from collections.abc import Iterator

import torch

from mnemoscope.core.protocols import has_linear_attention
from mnemoscope.hookcheck.law import Comparison, Family
from mnemoscope.hookcheck.mutants import always
from mnemoscope.hookcheck.subject import TestSubject

FAMILY = Family(name="sums", analyses=("heads", "circuits"))


@FAMILY.law(
    reason="Entropies, head scores and previous-token shares read a row as a distribution over keys.",
    mutant=always("pattern", lambda pattern: 0.9 * pattern),
    analyses=("attention-entropy",),
)
def pattern_rows_sum_to_one(subject: TestSubject) -> Iterator[Comparison]:
    """Every row of an attention pattern sums to one."""
    if has_linear_attention(subject.model):
        subject.skip("attention has no softmax")
    for layer in subject.require("pattern"):
        point = subject.point("pattern", layer)
        total = subject.clean.at[point].sum(-1)
        yield Comparison(point=point, got=total, wanted=torch.ones_like(total))
