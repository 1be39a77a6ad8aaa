"""Verdicts on record: those that count in the entries of a package's registry, for the shipped models.

Claims about draws or about a language model need no shipped models; their verdicts are there too. A claim without one
was not tried. `mnemoscope claims import` adds them; `mnemoscope claims run` gives a private verdict.
"""

from dataclasses import dataclass

from mnemoscope.claims.entry import packaged_entries

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
    return {
        entry.short_id: RecordedVerdict(
            outcome=verdict.outcome,
            n_clear=verdict.n_clear,
            n=verdict.n,
            replicate=entry.replicate,
            source=verdict.report,
            recipe=verdict.recipe,
            asked_of=verdict.asked_of,
        )
        for _, entry in packaged_entries()
        if (verdict := entry.verdict)
    }
