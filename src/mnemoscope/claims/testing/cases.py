"""A claim as its test states it, and its seeds: one case each, in which the claim is tried on one model."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

from mnemoscope.analyses.evaluation import accuracy_by_skill
from mnemoscope.claims.testing.effect import Effect
from mnemoscope.claims.verdict import Outcome
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.models.run import Run, by_label, find_runs
from mnemoscope.models.subjects import Subject, check_replicates, subject

Over = Literal["most", "every", "exists", "mean"]
Gate = str | Sequence[str] | Callable[[Subject], float]


@dataclass(frozen=True, kw_only=True, eq=False)
class Terms:
    """A claim as its test states it.

    `quantifier` is over seeds. `gate` says which models are judged: those that have learned a skill, or several; or it
    is a function from a `Subject` to a number (None: all). `at_least` is its lowest value that passes; of a skill, the
    share of right answers among all unseen sequences. `preset` is the preset or configuration (preset and recipe,
    `copy-small-quick`) of the runs, where several are found. `expect` is the outcome without which the session fails;
    None: any outcome is a result. Raises InputError for a value that is not among the allowed ones.
    """

    statement: str
    quantifier: Over = "most"
    gate: Gate | None = None
    at_least: float = 0.99
    preset: str | None = None
    expect: Outcome | None = None

    def __post_init__(self) -> None:
        one_of("quantifier", self.quantifier, get_args(Over))
        if self.expect is not None:
            one_of("expect", self.expect, get_args(Outcome))
        in_range("at_least", self.at_least, float("-inf"), float("inf"))

    @property
    def gate_statement(self) -> str:
        """The meaning of passing, to follow "which"; empty without a gate."""
        if self.gate is None:
            return ""
        if callable(self.gate):
            return f"{getattr(self.gate, '__name__', 'gate')} is {self.at_least:g} or more"
        skills = " and ".join(self._skills)
        return f"{skills} right in {100 * self.at_least:g} % of unseen sequences or more"

    @property
    def _skills(self) -> tuple[str, ...]:
        assert self.gate is not None
        assert not callable(self.gate)
        return (self.gate,) if isinstance(self.gate, str) else tuple(self.gate)

    def gate_value(self, subject: Subject) -> float | None:
        """The value that the gate looks at; None without a gate."""
        if self.gate is None:
            return None
        if callable(self.gate):
            return float(self.gate(subject))
        found = accuracy_by_skill(subject)
        for skill in self._skills:
            one_of("gate", skill, found)
        return min(found[skill] for skill in self._skills)


def read_terms(args: Sequence[Any], options: Mapping[str, Any], *, name: str, doc: str | None) -> Terms:
    """The terms that a marker gives in its positional arguments and keywords.

    Without a statement in the marker, the first paragraph of the test's docstring is the statement. Without that it is
    the test's name with spaces for underscores. Raises InputError for an argument or a value that is not allowed.
    """
    allowed = list(inspect.signature(Terms).parameters)
    for option in options:
        one_of("an option of the marker claim", option, allowed)
    if len(args) > 1 or (args and "statement" in options):
        raise InputError(f"the marker claim takes one statement, and keywords; got {len(args)} texts")
    first = inspect.cleandoc(doc or "").partition("\n\n")[0]
    default = " ".join(first.split()) or name.removeprefix("test_").replace("_", " ")
    return Terms(**{"statement": args[0] if args else default, **options})


Property = tuple[str, str | int | float]


def find(places: Sequence[str]) -> dict[str, list[Run]]:
    """The runs in some places, by configuration.

    A place is a run directory, a directory that holds some, or a word for runs that came with the package. Raises
    InputError where one holds none, or runs cannot be told apart.
    """
    return by_label([run for place in places for run in find_runs(place)])


def choose(groups: dict[str, list[Run]], preset: str | None) -> list[Run]:
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
    return runs


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A claim, the run of one seed of the configuration that it is about, and the runs of all seeds."""

    terms: Terms
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
        return self.terms.gate_value(self.subject)

    @property
    def learned(self) -> bool:
        """True if the model passes the gate."""
        return self.gate_value is None or self.gate_value >= self.terms.at_least

    def claim_properties(self, nodeid: str) -> list[Property]:
        """The properties known before anything was measured: plain values that survive other processes and XML."""
        terms, name = self.terms, self.name
        claim = nodeid.replace(f"[{name}]", "").replace(f"{name}-", "").replace(f"-{name}", "")
        return [
            ("claim", claim),
            ("claim_statement", terms.statement),
            ("claim_configuration", self.run.label),
            ("claim_seed", self.run.spec.seed),
            ("claim_n_seeds", len(self.runs)),
            ("claim_quantifier", terms.quantifier),
            ("claim_expect", terms.expect or ""),
            ("claim_gate", terms.gate_statement),
            ("claim_gate_at_least", float(terms.at_least)),
        ]

    def measured_properties(self, effects: Sequence[Effect]) -> list[Property]:
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
        return [
            *gate,
            ("claim_outcome", "holds" if least.slack > 0 else "deviates"),
            ("claim_what", least.what),
            ("claim_effect", least.value),
            ("claim_margin", least.margin),
            ("claim_direction", least.direction),
            ("claim_unit", least.unit),
            ("claim_slack", least.slack),
            ("claim_n_effects", len(effects)),
        ]
