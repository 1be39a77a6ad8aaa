"""Verdicts on record: `verdicts.json` in the package of a guest, the outcome of each claim on the shipped models.

Claims about draws or about a language model need no shipped models; their verdicts are there too. A claim that is not
there was not tried. A new trial of all claims writes the file anew; `mnemoscope claims run` gives a private verdict.
"""

import json
from dataclasses import dataclass

from mnemoscope.core import guests
from mnemoscope.core.errors import InputError

FILE = "verdicts.json"
"""The file with the fields of `RecordedVerdict` by id of the claim."""
NOT_TRIED = "not tried"
"""In the place of the outcome of a claim that has no verdict on record."""


@dataclass(frozen=True, kw_only=True)
class RecordedVerdict:
    """The outcome of a claim as it was published with the package."""

    outcome: str
    """As in `Verdict`, such as SUPPORTED."""
    n_clear: int
    """Judged replicates that meet the criterion."""
    n: int
    """Judged replicates."""
    replicate: str
    """The thing that is replicated, a seed say."""
    source: str
    """The place where it is reported: a folder of the repository."""
    recipe: str = ""
    """The recipe of the models; empty for a claim about none that was trained."""
    asked_of: str = ""
    """The language model that was asked; empty for other claims."""

    def __str__(self) -> str:
        """Outcome, and how many replicates meet the criterion."""
        return f"{self.outcome.replace('_', ' ')}, {self.n_clear} of {self.n}"

    @property
    def in_full(self) -> str:
        """The same with the models that were asked, and where it is reported."""
        of = f"{self.recipe} recipe" if self.recipe else self.asked_of
        return f"{self} {self.replicate}s{of and f', {of}'} ({self.source})"


def recorded_verdicts() -> dict[str, RecordedVerdict]:
    """The verdicts on record of all guests, by id of the claim; InputError where a file holds something else."""
    found = {}
    for place in filter(None, map(guests.location, guests.guests())):
        if not (file := place / FILE).is_file():
            continue
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            found |= {id: RecordedVerdict(**fields) for id, fields in content.items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(f"{file} holds no verdicts on record: {error}; install its package again") from None
    return found
