"""Claims that tests state, from the marker of a test to the ruling over all seeds.

Every seed is one item, in which the claim is tried on one model. While a model is on trial, effects are collected and
nothing is raised: a seed that does not do what is claimed deviates, and all seeds are judged together. Elsewhere an
effect that does not clear its margin is an AssertionError.

The effect of a seed is the smallest slack of its assertions, by how much it clears the margin, so that "most seeds do
both" is judged and not "most do the one and most the other". Where every seed has a single assertion with the same
margin, its number itself is judged, which decides the same. No control is run: they belong to claims that are
published.
"""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np
import xarray as xr

from mnemoscope.analyses.evaluation import accuracy_by_skill
from mnemoscope.claims.claim import Claim, Criterion, Direction, Gate, Outcome
from mnemoscope.claims.evidence import Evidence
from mnemoscope.claims.judge import judge
from mnemoscope.claims.ruling import Ruling
from mnemoscope.claims.verdict import Verdict
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.models.derived import check_files, refuse_edited
from mnemoscope.models.independence import check_replicates
from mnemoscope.models.run import Run, by_label, find_runs
from mnemoscope.models.subjects import Subject, subject

Properties = Mapping[str, Any]
"""The report of one seed's item: plain values that survive other processes and XML."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """A measured value and the criterion on it, whose name says in words what was measured."""

    value: float
    criterion: Criterion

    @property
    def slack(self) -> float:
        """The distance by which it clears the margin."""
        return float(self.criterion.slack(np.array([self.value]))[0])

    def __str__(self) -> str:
        it = self.criterion
        return f"{it.name} is {self.value:.3g}, not {it.wording} {it.unit}".rstrip()


_CURRENT: ContextVar[tuple[Callable[[], Subject], list[Effect]] | None] = ContextVar("on_trial", default=None)
"""The way to read the model on trial, and the effects that were measured on it."""


@contextmanager
def collect_effects(read: Callable[[], Subject]) -> Iterator[list[Effect]]:
    """Assertions within are about the model of `read`, add their effects to the list, and raise nothing about it."""
    effects: list[Effect] = []
    token = _CURRENT.set((read, effects))
    try:
        yield effects
    finally:
        _CURRENT.reset(token)


def subject_or_current(subject: Subject | None) -> Subject:
    """The given subject, else the one on trial; raises InputError where there is neither."""
    if subject is not None:
        return subject
    if (current := _CURRENT.get()) is None:
        raise InputError(
            "subject must be given outside a test marked with @pytest.mark.claim: Subject(model=..., task=..., seed=0)"
        )
    read, _ = current
    return read()


def claim_effect(
    value: float,
    *,
    above: float | None = None,
    below: float | None = None,
    within: float | None = None,
    unit: str = "",
    what: str = "the effect",
) -> None:
    """Claim that a number from the test lies beyond a margin that was fixed before.

    Give one of the margins: the number should lie `above` it, `below` it, or `within` it on either side of 0. `unit` is
    that of value and margin; `what` is the number in words. Raises InputError where not exactly one margin is given, or
    the number is NaN; AssertionError where no model is on trial, and the number does not clear the margin.
    """
    __tracebackhide__ = True
    margins: tuple[tuple[Direction, float | None], ...] = (("above", above), ("below", below), ("within", within))
    given: list[tuple[Direction, float]] = [(direction, margin) for direction, margin in margins if margin is not None]
    if len(given) != 1:
        names = ", ".join(direction for direction, _ in given) or "none"
        raise InputError(f"one of above, below and within must be given; got {names}")
    [(direction, margin)] = given
    record_effect(what, float(value), float(margin), direction, unit)


def record_effect(what: str, value: float, margin: float, direction: Direction, unit: str) -> None:
    """Record an effect of the model on trial; without one, raise AssertionError where it misses its margin."""
    __tracebackhide__ = True
    if not np.isfinite(value):
        raise InputError(f"{what} must be a finite number; got {value}")
    criterion = Criterion(name=what, quantifier="most", margin=margin, direction=direction, unit=unit)
    effect, current = Effect(value=value, criterion=criterion), _CURRENT.get()
    if current is not None:
        current[1].append(effect)
    elif effect.slack <= 0:
        raise AssertionError(str(effect))


@dataclass(frozen=True, kw_only=True, eq=False)
class MarkedClaim:
    """A claim as the marker of its test states it.

    `gate` chooses the models that are judged: those that have learned a skill, or several; or it is a function from a
    `Subject` to a number (None: all). Of a skill the number is the share of right answers among all unseen sequences.
    `preset` is the preset or configuration (`copy-small-quick`) of the runs, where several are found. `expect` is the
    outcome without which the session fails; None: any outcome is a result.
    """

    claim: Claim
    gate: str | Sequence[str] | Callable[[Subject], float] | None
    preset: str | None
    expect: Outcome | None

    def gate_value(self, subject: Subject) -> float | None:
        """The value that the claim's gate looks at; None without a gate."""
        if self.gate is None:
            return None
        if callable(self.gate):
            return float(self.gate(subject))
        found = accuracy_by_skill(subject)
        for skill in (skills := _skills(self.gate)):
            one_of("gate", skill, found)
        return min(found[skill] for skill in skills)


def read_marker(args: Sequence[Any], options: Mapping[str, Any], *, name: str, doc: str | None) -> MarkedClaim:
    """The claim that a marker states in its positional arguments and keywords.

    Without a statement in the marker, the first paragraph of the test's docstring is the statement. Without that it is
    the test's name with spaces for underscores. Raises InputError for an argument or a value that is not allowed.
    """
    for option in options:
        one_of("an option of the marker claim", option, ["statement", *_OPTIONS])
    if len(args) > 1 or (args and "statement" in options):
        raise InputError(f"the marker claim takes one statement, and keywords; got {len(args)} texts")
    given = {**_OPTIONS, **options}
    one_of("quantifier", given["quantifier"], ("most", "every", "exists", "mean"))
    if given["expect"] is not None:
        one_of("expect", given["expect"], get_args(Outcome))
    in_range("at_least", given["at_least"], -math.inf, math.inf)
    paragraph = " ".join(inspect.cleandoc(doc or "").partition("\n\n")[0].split())
    default = paragraph or name.removeprefix("test_").replace("_", " ")
    claim = Claim(
        id=name,
        statement=args[0] if args else given.get("statement", default),
        source=name,
        quantifier=given["quantifier"],
        margin=0.0,
        bounds=given["bounds"],
        gate=_gate(given["gate"], given["at_least"]),
    )
    return MarkedClaim(claim=claim, gate=given["gate"], preset=given["preset"], expect=given["expect"])


_OPTIONS: Mapping[str, Any] = {
    "quantifier": "most", "gate": None, "at_least": 0.99, "preset": None, "expect": None, "bounds": None
}  # fmt: skip
"""Options of the marker with their defaults."""


def _gate(gate: Any, at_least: float) -> Gate | None:
    if gate is None:
        return None
    if callable(gate):
        return Gate(statement=f"{getattr(gate, '__name__', 'gate')} is {at_least:g} or more", at_least=at_least)
    skills = " and ".join(_skills(gate))
    return Gate(statement=f"{skills} right in {100 * at_least:g} % of unseen sequences or more", at_least=at_least)


def _skills(gate: str | Sequence[str]) -> tuple[str, ...]:
    return (gate,) if isinstance(gate, str) else tuple(gate)


def runs_by_configuration(places: Sequence[str]) -> dict[str, list[Run]]:
    """The runs in some places: run directories, directories that hold some, or words for runs of the package."""
    return by_label([run for place in places for run in find_runs(place)])


def choose_runs(groups: dict[str, list[Run]], preset: str | None) -> list[Run]:
    """The runs of one configuration; without `preset`, of the only one.

    Raises InputError where it is missing or there are several, a run did not end or is not what it says, or a run
    occurs under two seeds.
    """
    labels = list(groups)
    if preset is not None and preset not in labels:
        labels = [label for label, runs in groups.items() if runs[0].spec.preset == preset]
        if not labels:
            one_of("preset of the claim", preset, groups)
    if preset in labels:
        labels = [preset]
    if len(labels) > 1:
        raise InputError(f"there are runs of several configurations; choose one by preset=: {', '.join(labels)}")
    runs = groups[labels[0]]
    if unfinished := [run for run in runs if not run.finished]:
        raise InputError(f"{unfinished[0].path} is not finished; the command that trained it continues it")
    check_replicates(runs)
    refuse_edited(check_files(run.path, run.label, run.spec.seed) for run in runs)
    return runs


@dataclass(frozen=True, kw_only=True, eq=False)
class SeedItem:
    """A claim, the run of one seed of the configuration that it is about, and the runs of all seeds."""

    marked: MarkedClaim
    run: Run
    runs: list[Run] = field(repr=False)

    @property
    def name(self) -> str:
        """The name of the seed's test item."""
        return f"seed-{self.run.spec.seed:02d}"

    @cached_property
    def subject(self) -> Subject:
        """The model, read at the first use."""
        return subject(self.run)

    @cached_property
    def gate_value(self) -> float | None:
        """The value that the gate looks at; None without a gate."""
        return self.marked.gate_value(self.subject)

    @property
    def learned(self) -> bool:
        """True if the model passes the gate."""
        gate = self.marked.claim.gate
        return gate is None or bool(gate.passes(self.gate_value))

    def claim_properties(self, nodeid: str) -> list[tuple[str, str | int | float]]:
        """The properties known before anything was measured."""
        claim, name = self.marked.claim, self.name
        gate = [("claim_gate_at_least", float(claim.gate.at_least))] if claim.gate else []
        bounds = zip(("claim_smallest", "claim_largest"), map(float, claim.bounds or ()), strict=False)
        return [
            ("claim", nodeid.replace(f"[{name}]", "").replace(f"{name}-", "").replace(f"-{name}", "")),
            ("claim_statement", claim.statement),
            ("claim_configuration", self.run.label),
            ("claim_seed", self.run.spec.seed),
            ("claim_n_seeds", len(self.runs)),
            ("claim_quantifier", claim.criteria[0].quantifier),
            ("claim_expect", self.marked.expect or ""),
            ("claim_gate", claim.gate.statement if claim.gate else ""),
            *gate,
            *bounds,
        ]

    def measured_properties(self, effects: Sequence[Effect]) -> list[tuple[str, str | int | float]]:
        """The measurements: of all effects the one nearest to failing, and how many there were; there must be one."""
        gate = [] if self.gate_value is None else [("claim_gate_value", self.gate_value)]
        if not self.learned:
            return [*gate, ("claim_outcome", "not learned"), ("claim_slack", math.nan)]
        if not effects:
            raise InputError(
                "a claim needs a number from every seed: use assert_necessary, claim_effect or another assertion of "
                "mnemoscope.claims.testing; a bare assert gives none"
            )
        least = min(effects, key=lambda effect: effect.slack)
        criterion = least.criterion
        return [
            *gate,
            ("claim_outcome", "holds" if least.slack > 0 else "deviates"),
            ("claim_what", criterion.name),
            ("claim_effect", least.value),
            ("claim_margin", criterion.margin),
            ("claim_direction", criterion.direction),
            ("claim_unit", criterion.unit),
            ("claim_slack", least.slack),
            ("claim_n_effects", len(effects)),
        ]


def rule_on_seeds(seeds: Sequence[Properties]) -> Ruling:
    """The ruling on one claim, from all seeds, those included that left no effect because they ended in an error."""
    first = seeds[0]
    seeds = sorted(seeds, key=lambda seed: seed["claim_seed"])
    measured = [seed for seed in seeds if "claim_outcome" in seed]
    judged = [seed for seed in measured if seed["claim_outcome"] != "not learned"]
    name, criterion = _criterion(judged)
    gate = Gate(statement=first["claim_gate"], at_least=first["claim_gate_at_least"]) if first["claim_gate"] else None
    units = {seed["claim_unit"] for seed in judged}
    claim = Claim(
        id=first["claim"],
        statement=first["claim_statement"],
        source=first["claim"],
        quantifier=first["claim_quantifier"],
        unit=units.pop() if len(units) == 1 else "",
        gate=gate,
        bounds=(first["claim_smallest"], first["claim_largest"]) if "claim_smallest" in first else None,
        **criterion,
    )
    effects = _stack_seeds(measured, name).assign_attrs(unit=claim.unit)
    evidence = Evidence(effects=effects, gate=None if gate is None else _stack_seeds(measured, "claim_gate_value"))
    verdict = _withhold_if_incomplete(judge(claim, evidence), len(measured), first["claim_n_seeds"])
    return Ruling(claim=claim, evidence=evidence, verdict=verdict, rivals={})


def is_unexpected(ruling: Ruling, first: Properties) -> bool:
    """True if another outcome was expected, by the properties of one of the seeds."""
    return first["claim_expect"] not in ("", ruling.verdict.outcome)


def summary_line(ruling: Ruling, first: Properties) -> str:
    """The configuration, share, effect, reason and deviating seeds, to follow the outcome."""
    v, numbers = ruling.verdict, "no seed to judge"
    if v.n:
        interval = f" [{v.effect_interval}]" if v.n > 1 else ""
        numbers = f"share {v.share:.2f} [{v.share_interval}], effect {v.effect:.3g}{interval} {v.unit}".rstrip()
    expected = f"(expected {first['claim_expect']}) " if is_unexpected(ruling, first) else ""
    slack = ruling.slack()
    deviating = ", ".join(map(str, slack.seed[slack <= 0].to_numpy().tolist()))
    odd = f" Deviating: seeds {deviating}." if deviating else ""
    return f"{expected}{v.id} ({first['claim_configuration']}): {numbers}. {v.reason}{odd}"


def _criterion(judged: Sequence[Properties]) -> tuple[str, dict[str, Any]]:
    """The number of a seed that is judged, and the criterion."""
    kinds = {(seed["claim_n_effects"], seed["claim_margin"], seed["claim_direction"]) for seed in judged}
    if len(kinds) == 1:
        [(n_effects, margin, direction)] = kinds
        if n_effects == 1 and direction != "within":  # a mean within a margin is another claim
            return "claim_effect", {"margin": margin, "direction": direction}
    return "claim_slack", {"margin": 0.0}


def _stack_seeds(seeds: Sequence[Properties], name: str) -> xr.DataArray:
    values = [float(seed.get(name, math.nan)) for seed in seeds]
    return xr.DataArray(values, dims="seed", coords={"seed": [seed["claim_seed"] for seed in seeds]})


def _withhold_if_incomplete(verdict: Verdict, n_measured: int, n_found: int) -> Verdict:
    """No verdict where seeds are missing: which ones are judged must not depend on how they came out."""
    if n_measured >= n_found:
        return verdict
    why = f"{n_found - n_measured} of {n_found} seeds were not measured: they failed, were skipped or not selected"
    reason = f"{verdict.reason.rstrip('.')}; {why}." if n_measured else f"{why}."
    return replace(verdict, outcome="NOT_APPLICABLE", p_support=math.nan, p_refute=math.nan, reason=reason)
