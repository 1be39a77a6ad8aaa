"""What is done at a site, as values."""

from dataclasses import dataclass
from typing import Literal

from mnemoscope.core.errors import one_of
from mnemoscope.core.site import Site

Replacement = Literal["zero", "mean", "resample"]
REPLACEMENTS: tuple[Replacement, ...] = ("zero", "mean", "resample")


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """The activation at `site` is replaced by one that says nothing about the sequence at hand.

    Attributes:
        site: Where.
        kind: `zero`: zeros (for z it depends on how biases are folded); `mean`: the mean over a reference set,
            position by position; `resample`: the activation in another sequence of the reference set, drawn at
            random.
    """

    site: Site
    kind: Replacement

    def __post_init__(self) -> None:
        one_of("the kind of an ablation", self.kind, REPLACEMENTS)

    def __str__(self) -> str:
        return f"{self.kind}-ablate {self.site}"
