"""Check a model against every law: a report of outcomes, breaches, and what of the analyses may be believed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mnemoscope.core.errors import InputError, suggest_nearest
from mnemoscope.core.protocols import ModelLike, resolve_model
from mnemoscope.hookcheck.law import FAMILIES, OUTCOMES, Finding, Law, Outcome
from mnemoscope.hookcheck.laws import LAWS
from mnemoscope.interventions.subject import TestSubject, make_subject


@dataclass(frozen=True, kw_only=True)
class Report:
    """The finding of every law about one model."""

    model: str
    findings: Mapping[str, Finding]

    @property
    def broken(self) -> tuple[str, ...]:
        """The laws that the model breaks."""
        return tuple(name for name, finding in self.findings.items() if finding.outcome == "broken")

    @property
    def holds(self) -> bool:
        """True if no law is broken."""
        return not self.broken

    def count(self, outcome: Outcome) -> int:
        """Number of laws with an outcome."""
        return sum(finding.outcome == outcome for finding in self.findings.values())

    def analyses(self) -> dict[str, tuple[str, ...]]:
        """Every analysis, with the laws that it relies on and that the model breaks or refuses; none: believe it.

        A law that has `kinds` matters at sites of these kinds only.
        """
        names = sorted({each for name in self.findings for each in LAWS[name].analyses})
        return {
            analysis: tuple(
                name
                for name, finding in self.findings.items()
                if analysis in LAWS[name].analyses and finding.outcome in ("broken", "refused")
            )
            for analysis in names
        }

    @property
    def counts(self) -> str:
        """The number of laws with each outcome, in words."""
        return ", ".join(f"{outcome}: {self.count(outcome)}" for outcome in OUTCOMES if self.count(outcome))

    def __str__(self) -> str:
        breaches = [self.findings[name].describe(LAWS[name]) for name in self.broken]
        return "\n".join([f"{self.model}: {self.counts}", *breaches])


def check_model(
    model: ModelLike,
    *,
    laws: Sequence[str] | None = None,
    seed: int = 0,
    n_prompts: int = 2,
    n_pos: int = 6,
    max_seconds: float | None = None,
    name: str | None = None,
) -> Report:
    """Check a model against laws that every hooked model keeps.

    Args:
        model: A run, a subject, or a hooked model: a HookedTransformer, a TransformerBridge, or another that satisfies
            `HookedModel`.
        laws: Names of laws or of families; None: all.
        seed: Draws prompts and written values.
        n_prompts: Prompts, and as many donors.
        n_pos: Tokens per prompt.
        max_seconds: Laws that are left after so much time are reported as refused; None: no limit.
        name: Name of the model in the report; None: its class.

    Raises:
        InputError: Where the model is none, or a law is not known.

    >>> report = ms.testing.check_model(model, laws=["pattern-rows-sum-to-one"])
    >>> report.holds
    True
    """
    hooked = resolve_model(model)
    for argument, value in {"n_prompts": n_prompts, "n_pos": n_pos}.items():
        if value < 1:
            raise InputError(f"{argument} must be 1 or more; got {value}")
    chosen = select_laws(laws)
    subject = make_subject(hooked, seed=seed, n_prompts=n_prompts, n_pos=n_pos, max_seconds=max_seconds)
    findings = {law.name: find(law, subject) for law in chosen}
    return Report(model=name or type(hooked).__name__, findings=findings)


def select_laws(names: Sequence[str] | None) -> list[Law]:
    """Laws by their names, or by those of their families; None: all."""
    if names is None:
        return list(LAWS.values())
    if isinstance(names, str):
        raise InputError(f"laws must be a list of names; got the text {names!r}: write [{names!r}]")
    for each in names:
        if each not in FAMILIES and each not in LAWS:
            raise InputError(
                f"a law must be a family, {', '.join(FAMILIES)}, or one of the {len(LAWS)} names in ms.testing.LAWS; "
                f"got {each!r}{suggest_nearest(each, (*FAMILIES, *LAWS))}"
            )
    return [law for law in LAWS.values() if law.name in names or law.family in names]


def find(law: Law, subject: TestSubject) -> Finding:
    """The finding of one law; of a broken one with the smallest input that shows it."""
    if subject.time_is_up:
        return Finding(outcome="refused", reason="no time was left for it; raise max_seconds")
    finding = law.examine(subject)
    return replace(finding, smallest=_smallest(law, subject)) if finding.outcome == "broken" else finding


def _smallest(law: Law, subject: TestSubject) -> str:
    """The smallest part of the prompts on which a law is broken, in words."""
    n_rows, n_pos = subject.tokens.shape[:2]
    sizes = [(rows, pos) for pos in range(1, n_pos + 1) for rows in range(1, n_rows + 1)]
    for rows, pos in sizes:
        part = subject.shortened(rows, pos)
        if subject.time_is_up or law.examine(part).outcome == "broken":
            return _describe(part)
    return _describe(subject)


def _describe(subject: TestSubject) -> str:
    """The prompts in words."""
    tokens: Any = subject.tokens
    if tokens.is_floating_point():
        return f"{tokens.shape[0]} prompts of {tokens.shape[1]} vectors"
    return f"tokens {tokens.tolist()}, donors {subject.donors.tolist()}"
