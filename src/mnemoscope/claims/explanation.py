"""The measurements of a claim, for a reader who has not read its code: for its verdict's page and `claims show`.

Wording decides nothing: it is no part of what is registered.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from mnemoscope.core.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A number that a measure returns; InputError refuses one without words.

    Attributes:
        words: What it is, as a noun phrase that follows "the effect is": "the accuracy lost on repeats without head 0".
        formula: The same as plain text with Unicode signs: "acc(intact) − acc(z of head h ← its mean)". Symbols are
            explained by the words or the procedure.
    """

    words: str
    formula: str = ""

    def __post_init__(self) -> None:
        if not self.words.strip():
            raise InputError("words of a quantity must say what it is; got none")


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A claim in words; InputError refuses a missing text.

    Attributes:
        procedure: How a replicate is measured and on which prompts, in sentences.
        quantities: By name what was measured: the effects of the claim and of its rivals, and what stands beside them
            where its name does not say enough.
        margins: Why the margins are what they are, in sentences.
        limits: What the evidence shows, and what it does not show, in sentences.
    """

    procedure: str
    quantities: Mapping[str, Quantity]
    margins: str
    limits: str = ""

    def __post_init__(self) -> None:
        for name in ("procedure", "margins"):
            if not getattr(self, name).strip():
                raise InputError(f"{name} of an explanation must be sentences; got none")
