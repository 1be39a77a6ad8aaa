"""The seeds of a claim test: one case each, in which the claim is tried on one model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.subject import Subject
from mnemoscope.models.run import Run, by_label, find_runs
from mnemoscope.models.subjects import subject
from mnemoscope.testing.effect import Effect
from mnemoscope.testing.terms import Terms

Property = tuple[str, str | int | float]


def find(places: Sequence[str]) -> dict[str, list[Run]]:
    """The runs in some places, by configuration.

    Args:
        places: Run directories, directories that hold some, or words for runs that came with the package.

    Raises:
        InputError: There are none in one of the places, or they cannot be told apart.
    """
    return by_label([run for place in places for run in find_runs(place)])


def choose(groups: dict[str, list[Run]], preset: str | None) -> list[Run]:
    """The runs of one configuration.

    Args:
        groups: From `find`.
        preset: Preset or configuration; None: the only one.

    Raises:
        InputError: It is not there, or there are several.
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
    return groups[labels[0]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A claim and one seed of the configuration that it is about.

    Attributes:
        terms: Of the claim.
        run: The seed's run.
        runs: Those of all seeds.
    """

    terms: Terms
    run: Run
    runs: list[Run] = field(repr=False)

    @property
    def name(self) -> str:
        """What the test item of the seed is called."""
        return f"seed-{self.run.spec.seed:02d}"

    def anew(self) -> "Case":
        """The same with a model that nobody has changed yet."""
        return Case(terms=self.terms, run=self.run, runs=self.runs)

    @cached_property
    def subject(self) -> Subject:
        """The model, read when first asked for."""
        return subject(self.run)

    @cached_property
    def gate_value(self) -> float | None:
        """What the gate looks at; None without a gate."""
        return self.terms.gate_value(self.subject)

    @property
    def learned(self) -> bool:
        """Whether the claim speaks of this model."""
        return self.gate_value is None or self.gate_value >= self.terms.at_least

    def claim_properties(self, nodeid: str) -> list[Property]:
        """What is known before anything was measured: plain values that survive other processes and XML."""
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
        """What was measured: of all effects the one nearest to failing, and how many there were.

        Raises:
            InputError: Nothing was claimed.
        """
        gate = [] if self.gate_value is None else [("claim_gate_value", self.gate_value)]
        if not self.learned:
            return [*gate, ("claim_outcome", "not learned"), ("claim_slack", math.nan)]
        if not effects:
            raise InputError(
                "a claim needs a number from every seed: use assert_necessary, claim_effect or another assertion of "
                "mnemoscope.testing; a bare assert gives none"
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
