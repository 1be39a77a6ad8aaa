"""A law about hooked models: a sentence, the reason, and a check that yields comparisons.

A check is a generator function. It yields a `Comparison` for each thing that it looked at. `examine` runs it and finds
the worst. Where the law says nothing about a model, the check calls `subject.skip`, with the reason.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from mnemoscope.interventions.comparison import Comparison, DoesNotApplyError, RefusedError
from mnemoscope.interventions.subject import TestSubject

FamilyName = Literal["identity", "sums", "reach", "causality", "batches", "gradients", "scope", "files"]
FAMILIES: tuple[FamilyName, ...] = get_args(FamilyName)
Outcome = Literal["holds", "broken", "refused", "does not apply"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The outcome of one law for one model.

    Attributes:
        outcome: `holds`, `broken`, `refused` (the model raised an exception) or `does not apply`.
        amount: The worst difference, as a share of the size of the value demanded; None where nothing was compared.
        points: The hook points at which the law is broken, or those that were looked at.
        reason: The words of a refusal, or the reason why the law does not apply.
        smallest: The smallest input found that shows the breach, in words.
    """

    outcome: Outcome
    amount: float | None = None
    points: tuple[str, ...] = ()
    reason: str = ""
    smallest: str = ""

    def describe(self, law: "Law") -> str:
        """A breach in one line."""
        where = ", ".join(self.points[:3]) + (", …" if len(self.points) > 3 else "")
        return f"{law.name} is broken by {self.amount:.2g} at {where} on {self.smallest}: {law.sentence}"


Check = Callable[[TestSubject], Iterator[Comparison]]
Mutant = Callable[[Any], Any]
"""A function from a good model to one with exactly one fault."""


@dataclass(frozen=True, kw_only=True)
class Law:
    """A sentence that holds for every hooked model to which it applies.

    >>> ms.testing.LAWS["pattern-rows-sum-to-one"].family
    'sums'

    Attributes:
        name: Words with hyphens.
        family: The group of the law.
        sentence: The law.
        reason: What goes wrong in an analysis of a model that breaks it.
        check: A generator of comparisons.
        mutant: A function from a good model to one that has exactly the fault that the law forbids.
        threads: Public reports that the law would have caught.
        analyses: Analyses, by their commands, that rely on the law.
        kinds: Kinds of sites at which a breach makes these unreliable; none: at all of them.
    """

    name: str
    family: FamilyName
    sentence: str
    reason: str
    check: Check
    mutant: Mutant
    threads: tuple[str, ...] = ()
    analyses: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    def examine(self, subject: TestSubject) -> Finding:
        """Check a model."""
        try:
            compared = list(self.check(subject))
        except DoesNotApplyError as error:
            return Finding(outcome="does not apply", reason=str(error))
        except RefusedError as error:
            return Finding(outcome="refused", reason=str(error))
        except Exception as error:  # activations of a shape that no law foresaw
            line = (str(error).strip() or "no message").splitlines()[0]
            return Finding(outcome="refused", reason=f"it cannot be compared: {type(error).__name__}: {line}")
        if not compared:
            return Finding(outcome="does not apply", reason="the model has no hook point that the law is about")
        breaches = [each.breach(0 if each.exact else each.tolerance or subject.tolerance) for each in compared]
        broken = [each for each, breach in zip(compared, breaches, strict=True) if breach]
        worst = max(breaches) if broken else max(each.amount for each in compared)
        points = tuple(dict.fromkeys(each.point for each in broken or compared))
        return Finding(outcome="broken" if broken else "holds", amount=worst, points=points)


@dataclass(frozen=True, kw_only=True)
class Family:
    """The laws of one module, in order; `analyses` are those that rely on all of them."""

    name: FamilyName
    analyses: tuple[str, ...] = ()
    laws: dict[str, Law] = field(default_factory=dict)

    def law(
        self,
        *,
        reason: str,
        mutant: Mutant,
        threads: tuple[str, ...] = (),
        analyses: tuple[str, ...] = (),
    ) -> Callable[[Check], Check]:
        """Decorate a check: its name is the law's, its docstring the sentence."""

        def add(check: Check) -> Check:
            sentence = " ".join((check.__doc__ or "").split())
            name = check.__name__.replace("_", "-")
            self.add(name, sentence, check, reason=reason, mutant=mutant, threads=threads, analyses=analyses)
            return check

        return add

    def add(self, name: str, sentence: str, check: Check, **rest: Any) -> None:
        """Add a law that is made from a function with arguments, such as one for each kind of hook point."""
        rest["analyses"] = (*self.analyses, *rest.get("analyses", ()))
        self.laws[name] = Law(name=name, family=self.name, sentence=sentence, check=check, **rest)
