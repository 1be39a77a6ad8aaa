"""Combinations of the choices behind a verdict, under each of which the claim is judged anew: its multiverse.

The choices are the factors of the claim and what else it names as `choices` (ablation kind, reference set, metric,
recipe, role selector), each with the claim's own value first; and four that need no measurement:

- the margin, whose distance from zero (for an accuracy, a share or a probability: from the nearer of 0 and 1) is
  multiplied by .5, .75, 1, 1.5 and 2;
- the bound of the gate, halved and doubled in the same way;
- the quantifier: `mean` in the place of `most` if the effect has bounds, and `most` in the place of the others;
- the prompts, where effects are kept for each of them and they were drawn: the first half, or the second.

Where there are more combinations than `AT_MOST`, so many are drawn, with every value of a choice equally often and
independently of the other choices. Each is judged by itself, for 16 replicates. Controls test the instrument, so they
are measured under the same factors and compared with the claim's own margins: tables are planted beside these.

Sources: Steegen, Tuerlinckx, Gelman & Vanpaemel 2016 (multiverse analysis); Simonsohn, Simmons & Nelson 2020
(specification curves). *Does not show* which choice is right, nor anything about choices that nobody named.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mnemoscope.claims.claim import SOURCE, Claim, Criterion, Gate, Quantifier
from mnemoscope.claims.criterion import foregone
from mnemoscope.claims.evidence import Evidence, as_dataset
from mnemoscope.claims.measures import Factors
from mnemoscope.claims.verdict import Outcome, Verdict
from mnemoscope.core.seeding import stream_seed

AT_MOST = 200
"""The largest number of combinations that are tried."""
AS_CLAIMED = "as claimed"
"""The word for the claim's own value of a choice."""
SCALES = (1.0, 0.5, 0.75, 1.5, 2.0)
"""Factors by which the distance of a margin is multiplied; the gate has the halved and the doubled one."""
MARGIN, GATE_BOUND, QUANTIFIER, PROMPTS = "margin", "bound of the gate", "quantifier", "prompts"
"""Names of the choices that need no measurement."""

_BETWEEN_0_AND_1 = ("accuracy", "share", "probability", "recall")
_IN_PLACE_OF: Mapping[Quantifier, Quantifier] = {
    "most": "mean", "every": "most", "exists": "exists", "mean": "most", "equivalence": "most",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Combination:
    """One value for every choice: factors that differ from the claim's own, and how the evidence is judged.

    Attributes:
        changed: Factors of the measure or of training, with their values.
        margin: Multiplies the distance of each margin.
        gate: Multiplies the distance of the gate's bounds.
        quantifier: Whether another takes the place of the claim's own.
        prompts: Which are used: 0 all, 1 the first half, 2 the second.
    """

    changed: Factors = ()
    margin: float = 1.0
    gate: float = 1.0
    quantifier: bool = False
    prompts: int = 0

    def applied_to(self, claim: Claim) -> Claim:
        """The claim with these margins, bounds and quantifiers."""
        parts = tuple(self._changed_part(part) for part in claim.criteria)
        alone = {"parts": parts, "quantifier": None, "margin": None, "direction": "above", "bounds": None}
        return replace(claim, gate=_scaled_gate(claim.gate, self.gate), **alone)

    def _changed_part(self, part: Criterion) -> Criterion:
        margin = _scaled_margin(part, self.margin)
        assert margin is not None
        quantifier = _other_quantifier(part) if self.quantifier else part.quantifier
        return replace(part, margin=margin, quantifier=quantifier)

    def chosen_from(self, evidence: Evidence) -> Evidence:
        """The evidence on these prompts."""
        effects = as_dataset(evidence.effects)
        if not self.prompts or "prompt" not in effects.dims:
            return evidence
        middle = effects.sizes["prompt"] // 2
        half = slice(None, middle) if self.prompts == 1 else slice(middle, None)
        return replace(evidence, effects=effects.isel(prompt=half))

    def in_words(self, claim: Claim) -> dict[str, str]:
        """The value of every choice of the claim."""
        changed = dict(self.changed)
        words = {name: str(changed.get(name, AS_CLAIMED)) for name in (*claim.factors, *claim.choices)}
        others = {
            MARGIN: f"× {self.margin:g}",
            GATE_BOUND: f"× {self.gate:g}",
            QUANTIFIER: ", ".join(dict.fromkeys(part.quantifier for part in self.applied_to(claim).criteria)),
            PROMPTS: ("all", "first half", "second half")[self.prompts],
        }
        return words | {name: text for name, text in others.items() if name in judging_choices(claim)}


def judging_choices(claim: Claim) -> dict[str, tuple[Any, ...]]:
    """The choices that need no measurement, with their values: those that make a difference to this claim."""
    scales = [scale for scale in SCALES if all(_scaled_margin(part, scale) is not None for part in claim.criteria)]
    found: dict[str, tuple[Any, ...]] = {}
    if any(part.margin for part in claim.criteria):
        found[MARGIN] = tuple(scales)
    if claim.gate is not None and _scaled_gate(claim.gate, 2.0) != claim.gate:
        found[GATE_BOUND] = (1.0, 0.5, 2.0)
    if any(_other_quantifier(part) != part.quantifier for part in claim.criteria):
        found[QUANTIFIER] = (False, True)
    if claim.prompts in ("own", "shared"):
        found[PROMPTS] = (0, 1, 2)
    return found


def choices_of(claim: Claim) -> dict[str, tuple[Any, ...]]:
    """Every choice of a claim with its values, the claim's own first; those that need a measurement come first."""
    measured = {name: (AS_CLAIMED, *values) for name, values in (*claim.factors.items(), *claim.choices.items())}
    return measured | judging_choices(claim)


def n_combinations(claim: Claim) -> int:
    """The number of combinations that the choices of a claim have."""
    return math.prod(map(len, choices_of(claim).values()))


def combinations(claim: Claim, *, at_most: int = AT_MOST, seed: int = 0) -> list[Combination]:
    """Combinations of the choices of a claim, all or `at_most` drawn from `seed`; the first changes nothing."""
    choices = list(choices_of(claim).items())
    sizes, n = [len(values) for _, values in choices], n_combinations(claim)
    picked = np.indices(sizes).reshape(len(sizes), n).T if n <= at_most else _draw(sizes, at_most, seed, claim.id)
    n_measured = len(claim.factors) + len(claim.choices)
    return [_combination(choices, row, n_measured) for row in picked.tolist()]


def _draw(sizes: Sequence[int], n: int, seed: int, id: str) -> np.ndarray:
    """`n` different rows of indices, zeros first, every value of a column as often as the others but for repeats."""
    rng = np.random.default_rng(stream_seed(seed, "multiverse", id))
    rows = {(0,) * len(sizes): None}
    while len(rows) < n:
        columns = [rng.permutation(np.resize(rng.permutation(size), n)) for size in sizes]
        rows |= dict.fromkeys(map(tuple, np.stack(columns, 1).tolist()))
    return np.array(list(rows)[:n])


def _combination(choices: Sequence[tuple[str, tuple[Any, ...]]], row: Sequence[int], n_factors: int) -> Combination:
    chosen = [(name, values[i]) for (name, values), i in zip(choices, row, strict=True)]
    judging = dict(chosen[n_factors:])
    return Combination(
        changed=tuple((name, value) for (name, value), i in zip(chosen, row[:n_factors], strict=False) if i),
        margin=judging.get(MARGIN, 1.0),
        gate=judging.get(GATE_BOUND, 1.0),
        quantifier=judging.get(QUANTIFIER, False),
        prompts=judging.get(PROMPTS, 0),
    )


def _other_quantifier(part: Criterion) -> Quantifier:
    other = _IN_PLACE_OF[part.quantifier]
    if other == "mean" and not all(map(math.isfinite, part.limits)):  # nothing decides such a mean
        return part.quantifier
    return "equivalence" if other == "mean" and part.direction == "within" else other


def _scaled_margin(part: Criterion, scale: float) -> float | None:
    """The margin at another distance; None where it lies at 0 or 1, or beyond, or decides the same for every effect."""
    bounded = any(word in part.unit for word in _BETWEEN_0_AND_1) and 0 < part.margin < 1
    if not bounded or part.direction == "within":
        scaled = part.margin * scale
        return None if foregone(part.direction, scaled, part.limits) else scaled
    scaled = _scaled_share(part.margin, scale)
    return scaled if 0 < scaled < 1 and not foregone(part.direction, scaled, part.limits) else None


def _scaled_share(share: float, scale: float) -> float:
    return 1 - (1 - share) * scale if share > 0.5 else share * scale


def _scaled_gate(gate: Gate | None, scale: float) -> Gate | None:
    """The gate with its bounds at another distance, if they lie between 0 and 1; others stay."""
    if gate is None:
        return None
    bounds = {
        name: _scaled_share(bound, scale)
        for name in ("at_least", "at_most")
        if 0 < (bound := getattr(gate, name)) < 1 and 0 < _scaled_share(bound, scale) < 1
    }
    moved = {**{name: getattr(gate, name) for name in ("at_least", "at_most")}, **bounds}
    return replace(gate, **moved) if moved["at_least"] <= moved["at_most"] else gate


def can_halve_prompts(evidence: Evidence) -> bool:
    """True if the prompts of the evidence can be halved: they are kept, four or more, and none shares a source."""
    effects = as_dataset(evidence.effects)
    return effects.sizes.get("prompt", 0) > 3 and SOURCE not in effects.coords


@dataclass(frozen=True, kw_only=True)
class Universe:
    """One combination of analysis choices, each with its value in words, and the verdict under it.

    `fault` says which control misbehaves under these choices, so that nothing is decided; empty: none does.
    """

    choices: Mapping[str, str]
    verdict: Verdict
    fault: str = ""

    @property
    def outcome(self) -> Outcome:
        """The outcome, if controls behave."""
        return "INCONCLUSIVE" if self.fault else self.verdict.outcome


@dataclass(frozen=True, kw_only=True)
class Multiverse:
    """The verdicts of a claim under combinations of its choices.

    Attributes:
        outcome: The verdict on the claim as it stands.
        replicate: The thing that is replicated, a seed say.
        universes: One per combination that was judged, the claim as it stands first.
        n_combinations: How many combinations there are.
        n_drawn: How many of them were drawn.
    """

    outcome: Outcome
    replicate: str
    universes: tuple[Universe, ...]
    n_combinations: int
    n_drawn: int

    @property
    def n_agreeing(self) -> int:
        """Combinations with the same outcome."""
        return sum(each.outcome == self.outcome for each in self.universes)

    @property
    def n_opposed(self) -> int:
        """Combinations that decide the other way; of an undecided claim, that decide at all."""
        decided = {"SUPPORTED": {"REFUTED"}, "REFUTED": {"SUPPORTED"}}.get(self.outcome, {"SUPPORTED", "REFUTED"})
        return sum(each.outcome in decided for each in self.universes)

    @property
    def agreement(self) -> list[tuple[str, str, int, int]]:
        """For every value of every choice: choice, value, combinations that agree, and combinations."""
        found: dict[tuple[str, str], list[bool]] = {}
        for each in self.universes:
            for pair in each.choices.items():
                found.setdefault(pair, []).append(each.outcome == self.outcome)
        names = list(dict.fromkeys(name for name, _ in found))
        ordered = sorted(found.items(), key=lambda item: names.index(item[0][0]))
        return [(*pair, sum(agree), len(agree)) for pair, agree in ordered]

    @property
    def sentence(self) -> str:
        """The numbers of combinations that agree, oppose the verdict, decide nothing, and cannot be judged."""
        n, missing = len(self.universes), self.n_drawn - len(self.universes)
        drawn = f", drawn from {self.n_combinations:,}," if self.n_drawn < self.n_combinations else ""
        faults = sum(bool(each.fault) and self.outcome != "INCONCLUSIVE" for each in self.universes)
        rest = n - self.n_agreeing - self.n_opposed - faults
        agreeing = f"{self.n_agreeing} ({100 * self.n_agreeing / n:.0f} %)"
        sentences = [
            f"Of {n} combinations of analysis choices{drawn} {agreeing} agree with the verdict "
            f"{self.outcome.replace('_', ' ')}, {self.n_opposed} decide otherwise and {rest} do not decide."
        ]
        if faults:
            sentences.append(f"In {faults} a control misbehaves, so that they decide nothing.")
        if missing:
            sentences.append(
                f"{missing} more cannot be judged: fewer than 16 {self.replicate}s are there or pass the gate, or "
                "effects come without prompts."
            )
        return " ".join(sentences)
