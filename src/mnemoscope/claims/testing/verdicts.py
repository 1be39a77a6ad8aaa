"""From what the seeds of a claim test left behind to a verdict.

The effect of a seed is the smallest slack of its assertions, by how much it clears the margin, so that "most seeds do
both" is judged and not "most do the one and most the other". Where every seed has a single assertion with the same
margin, its number itself is judged, which decides the same. No control is run: they belong to claims that are
published (`claims.claim`).
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import xarray as xr

from mnemoscope.claims.claim import Claim, Gate
from mnemoscope.claims.evidence import Evidence
from mnemoscope.claims.judge import judge
from mnemoscope.claims.verdict import Verdict, verdict_record
from mnemoscope.models.files import write_atomically

Properties = Mapping[str, Any]
"""The report of one seed's item (`testing.cases`)."""


@dataclass(frozen=True, kw_only=True)
class Decided:
    """A claim of a test and its verdict, whose id is that of the test without the seed.

    `expect` is the expected outcome, empty if any will do. `deviating` are seeds that do not do what is claimed.
    """

    verdict: Verdict
    statement: str
    configuration: str
    expect: str
    deviating: tuple[int, ...]

    @property
    def unexpected(self) -> bool:
        """True if another outcome was expected."""
        return self.expect not in ("", self.verdict.outcome)

    @property
    def line(self) -> str:
        """Who was judged, share, effect and reason, to follow the outcome."""
        v = self.verdict
        expected = f"(expected {self.expect}) " if self.unexpected else ""
        numbers = "no seed to judge"
        if v.n:
            effect = f"effect {v.effect:.3g} [{v.effect_interval}]"
            if v.n == 1:
                effect = f"effect {v.effect:.3g}"
            numbers = f"share {v.share:.2f} [{v.share_interval}], {effect} {v.unit}".rstrip()
        odd = f" Deviating: seeds {', '.join(map(str, self.deviating))}." if self.deviating else ""
        return f"{expected}{v.id} ({self.configuration}): {numbers}. {v.reason}{odd}"


def decide(seeds: Sequence[Properties]) -> Decided:
    """The verdict on one claim, from all seeds, those included that left no effect because they ended in an error."""
    first = seeds[0]
    seeds = sorted(seeds, key=lambda seed: seed["claim_seed"])
    measured = [seed for seed in seeds if "claim_outcome" in seed]
    judged = [seed for seed in measured if seed["claim_outcome"] != "not learned"]
    name, criterion = _criterion(judged)
    gate = Gate(statement=first["claim_gate"], at_least=first["claim_gate_at_least"]) if first["claim_gate"] else None
    claim = Claim(
        id=first["claim"],
        statement=first["claim_statement"],
        source=first["claim"],
        quantifier=first["claim_quantifier"],
        gate=gate,
        **criterion,
    )
    units = {seed["claim_unit"] for seed in judged}
    effects = _along_seed(measured, name).assign_attrs(unit=units.pop() if len(units) == 1 else "")
    evidence = Evidence(effects=effects, gate=None if gate is None else _along_seed(measured, "claim_gate_value"))
    return Decided(
        verdict=_unless_incomplete(judge(claim, evidence), len(measured), first["claim_n_seeds"]),
        statement=claim.statement,
        configuration=first["claim_configuration"],
        expect=first["claim_expect"],
        deviating=tuple(seed["claim_seed"] for seed in judged if seed["claim_outcome"] == "deviates"),
    )


def write_verdicts(decided: Sequence[Decided], path: Path) -> None:
    """Write verdicts as JSON: a list of objects."""
    records = [{**verdict_record(one.verdict), "statement": one.statement} for one in decided]
    write_atomically(path, (json.dumps(records, indent=2) + "\n").encode())


def _criterion(judged: Sequence[Properties]) -> tuple[str, dict[str, Any]]:
    """The number of a seed that is judged, and the criterion."""
    kinds = {(seed["claim_n_effects"], seed["claim_margin"], seed["claim_direction"]) for seed in judged}
    if len(kinds) == 1:
        [(n_effects, margin, direction)] = kinds
        if n_effects == 1 and direction != "within":  # a mean within a margin is another claim
            return "claim_effect", {"margin": margin, "direction": direction}
    return "claim_slack", {"margin": 0.0}


def _along_seed(seeds: Sequence[Properties], name: str) -> xr.DataArray:
    values = [float(seed.get(name, math.nan)) for seed in seeds]
    return xr.DataArray(values, dims="seed", coords={"seed": [seed["claim_seed"] for seed in seeds]})


def _unless_incomplete(verdict: Verdict, n_measured: int, n_found: int) -> Verdict:
    """No verdict where seeds are missing: which ones are judged must not depend on how they came out."""
    if n_measured >= n_found:
        return verdict
    why = f"{n_found - n_measured} of {n_found} seeds were not measured: they failed, were skipped or not selected"
    reason = f"{verdict.reason.rstrip('.')}; {why}." if n_measured else f"{why}."
    return replace(verdict, outcome="NOT_APPLICABLE", p_support=math.nan, p_refute=math.nan, reason=reason)
