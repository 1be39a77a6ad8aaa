"""The ruling on a claim: its verdict beside rivals, other choices, the course of training, and the registration.

`ruling_record` and `verdict_record` give them as plain data, which is what files contain.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from scipy import stats

from mnemoscope.claims.claim import Claim, Outcome, is_training_factor
from mnemoscope.claims.evidence import Evidence, prompt_mean, select_effect
from mnemoscope.claims.intervals import Interval
from mnemoscope.claims.multiverse import Multiverse
from mnemoscope.claims.pooling import MIN_SYSTEMS, Pooled, pool, pool_by_scatter
from mnemoscope.claims.registration import Superseded, registration
from mnemoscope.claims.replicates import expected_seeds
from mnemoscope.claims.standing import NOT_REGISTERED, Standing
from mnemoscope.claims.verdict import PartResult, Verdict
from mnemoscope.models.files import write_atomically


@dataclass(frozen=True, kw_only=True)
class SensitivityCell:
    """The claim, or one of its rivals, with one factor changed.

    The factor is a keyword of the measure, `recipe`, or a field of the configurations; `value` is its value here, in
    words. The verdict is as if the claim stood alone, asking for 16 replicates; a headline claim asks for no more here.
    `before` is the outcome of the same claim without the change.
    """

    factor: str
    value: str
    verdict: Verdict
    before: Outcome

    @property
    def flips(self) -> bool:
        """True if the change makes another outcome; a cell that decides nothing makes none."""
        return self.verdict.outcome not in (self.before, "INCONCLUSIVE", "NOT_APPLICABLE")

    def sentence(self, replicate: str) -> str:
        """The outcome here, with the number of replicates that clear the margins."""
        where = f"Under the {self.value} recipe" if self.factor == "recipe" else f"With {self.factor} = {self.value}"
        v = self.verdict
        return f"{where} it is {v.outcome} ({round(v.share * v.n)} of {v.n} {replicate}s)."


@dataclass(frozen=True, kw_only=True)
class PlacedOriginal:
    """The value of one quantity on a published model beside the judged replicates; `rank` is from 1 to `n`."""

    file: str
    quantity: str
    value: float
    mean: float
    low: float
    high: float
    rank: int
    n: int


NO_CONTROLS = "No control tests the measure."
"""The first sentence of a verdict on a claim without controls."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Ruling:
    """The result of a trial.

    `rivals` has the verdicts on its rivals, by id. `sensitivity` has one factor changed at a time, of the claim and of
    rivals that name other factors. `emergence` has the effects along `step`, of the one seed that the attribute `seed`
    names; None where no seed has checkpoints along training, or the measure makes no sense there. `standing` says
    whether the claim was registered before its runs, and `departures` are differences from the registration. `code`
    says which code has moved since registration, which is no departure. `set_aside` are runs of the claim's
    configurations that were handed in and are not used, and why. `superseded` are its earlier forms, the oldest first.
    `selection` says how its replicates may have been chosen, and `verified` what of the evidence was compared anew.
    `false_discovery_rate` is the smallest at which its decision stands among all claims of the call; None for a single
    claim, or one without a p. `multiverse` has the verdicts under combinations of choices; None where it was not asked
    for. `independence` says how many runs are verified as separate trainings, and what their seeds share. `originals`
    has what was measured on published models; no verdict rests on it.
    """

    claim: Claim
    evidence: Evidence
    verdict: Verdict
    rivals: Mapping[str, Verdict]
    sensitivity: tuple[SensitivityCell, ...] = ()
    emergence: xr.Dataset | None = None
    standing: Standing = NOT_REGISTERED
    departures: tuple[str, ...] = ()
    code: str = ""
    set_aside: tuple[str, ...] = ()
    superseded: tuple[Superseded, ...] = ()
    selection: tuple[str, ...] = ()
    verified: str = ""
    false_discovery_rate: float | None = None
    multiverse: Multiverse | None = None
    independence: tuple[str, ...] = ()
    originals: tuple[PlacedOriginal, ...] = ()

    @property
    def confirmed(self) -> bool:
        """True for a decision on a claim as it was registered before its runs; any other verdict is exploratory."""
        decided = self.verdict.outcome in ("SUPPORTED", "REFUTED")
        return decided and self.standing.can_confirm and not self.departures

    @property
    def favoured(self) -> tuple[str, ...]:
        """The explanations that the evidence supports: ids of the claim and of its rivals."""
        return tuple(v.id for v in (self.verdict, *self.rivals.values()) if v.outcome == "SUPPORTED")

    @property
    def favoured_otherwise(self) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
        """Changes under which other explanations are supported: factor, value and their ids.

        Those that were put to the claim and to all its rivals, with an answer that decides something for each.
        """
        asked: dict[tuple[str, str], list[Verdict]] = {}
        for cell in self.sensitivity:
            asked.setdefault((cell.factor, cell.value), []).append(cell.verdict)
        found = []
        for (factor, value), verdicts in asked.items():
            known = all(verdict.outcome not in ("INCONCLUSIVE", "NOT_APPLICABLE") for verdict in verdicts)
            supported = tuple(verdict.id for verdict in verdicts if verdict.outcome == "SUPPORTED")
            if known and len(verdicts) == 1 + len(self.rivals) and set(supported) != set(self.favoured):
                found.append((factor, value, supported))
        return tuple(found)

    @property
    def flips(self) -> tuple[SensitivityCell, ...]:
        """Cells of the sensitivity table with another outcome."""
        return tuple(cell for cell in self.sensitivity if cell.flips)

    @property
    def pooled(self) -> Pooled | None:
        """The claim's effect over the language models, or the configurations and recipes, that it was asked of.

        None where there are too few. Of models those count that pass the gate, each with its mean over questions. Of
        configurations, its own included, those that have a verdict and an interval of their mean that is finite and no
        point.
        """
        if self.evidence.replicate == "model":
            effects = self._effects_of_models()
            return pool_by_scatter(effects) if len(effects) >= MIN_SYSTEMS else None
        asked = [cell.verdict for cell in self.sensitivity if is_training_factor(cell.factor)]
        found = []
        for verdict in (self.verdict, *(each for each in asked if each.id == self.claim.id)):
            width = verdict.effect_interval.high - verdict.effect_interval.low
            if verdict.outcome != "NOT_APPLICABLE" and 0 < width < math.inf:
                found.append((verdict.effect, width / 2 / float(stats.t.isf(0.025, verdict.n - 1))))
        return pool(*zip(*found, strict=True)) if len(found) >= MIN_SYSTEMS else None

    def _effects_of_models(self) -> list[float]:
        """The effects of the models that pass the gate and have one; of several parts, of the one that decides."""
        deciding = [part.name for part in self.verdict.parts if part.effect == self.verdict.effect]
        part = (deciding or [self.claim.criteria[0].name])[0]
        gate, effects = self.claim.gate, select_effect(self.evidence.effects, part).to_numpy()
        passes = np.isfinite(effects) if gate is None else gate.passes(self.evidence.gate) & np.isfinite(effects)
        return effects[passes].tolist()

    @property
    def reason(self) -> str:
        """The reason of the verdict.

        Before it stand a sentence where the claim has no controls, and what comes out of models that were trained
        otherwise, if it is another.
        """
        others = [cell for cell in self.flips if cell.verdict.id == self.claim.id and is_training_factor(cell.factor)]
        before = [NO_CONTROLS] if not self.claim.controls else []
        before += [cell.sentence(self.claim.replicate) for cell in others]
        reason = self.verdict.reason
        return " ".join([*before, reason[0].upper() + reason[1:]]) if before else reason

    def slack(self) -> xr.DataArray:
        """The distance by which each judged replicate clears the margins; empty without a replicate.

        Of several parts the least counts, or the most if any of them will do.
        """
        gate, effects = self.claim.gate, self.evidence.effects
        each = [part.slack(prompt_mean(select_effect(effects, part.name)).to_numpy()) for part in self.claim.criteria]
        slack = (np.min if self.claim.joined == "all" else np.max)(each, axis=0)
        passes = np.full(len(slack), True) if gate is None else gate.passes(self.evidence.gate)
        labels = self.evidence.labels[passes]
        return xr.DataArray(slack[passes], coords={self.evidence.replicate: labels}, dims=self.evidence.replicate)

    def typical(self) -> int | str | None:
        """The judged replicate in the middle: as many clear the margins by more as by less."""
        slack = self.slack()
        middle = slack.to_numpy().argsort(kind="stable")[slack.size // 2 :][:1]
        return slack[self.evidence.replicate].to_numpy()[middle][0].item() if slack.size else None

    def deviating(self) -> int | str | None:
        """The replicate that does most clearly what most do not; None if all do alike."""
        slack = self.slack()
        if not slack.size:
            return None
        values = slack.to_numpy() if (slack > 0).mean() >= 0.5 else -slack.to_numpy()
        place = int(values.argmin())
        return slack[self.evidence.replicate].to_numpy()[place].item() if values[place] <= 0 else None


def ruling_record(ruling: Ruling) -> dict[str, Any]:
    """A ruling as plain data for JSON; numbers that are not finite become None."""
    claim = ruling.claim
    fixed = registration(claim, expected_seeds(claim))
    return {
        **verdict_record(ruling.verdict),
        "reason": ruling.reason,
        "recipe": claim.recipe or None,
        "statement": claim.statement,
        "source": claim.source,
        "headline": claim.headline,
        "units": {
            name: {"preset": unit["preset"], "recipe": unit["recipe"], **unit["changes"]}
            for name, unit in fixed["units"].items()
        },
        "models": list(ruling.evidence.models),
        "favoured": list(ruling.favoured),
        "favoured_otherwise": [
            {"factor": factor, "value": value, "favoured": list(ids)}
            for factor, value, ids in ruling.favoured_otherwise
        ],
        "pooled": None if ruling.pooled is None else asdict(ruling.pooled),
        "set_aside": list(ruling.set_aside),
        "independence": list(ruling.independence),
        "superseded": [asdict(earlier) for earlier in ruling.superseded],
        "standing": asdict(ruling.standing),
        "confirmed": ruling.confirmed,
        "departures": list(ruling.departures),
        "code": ruling.code,
        "selection": list(ruling.selection),
        "verified": ruling.verified,
        "false_discovery_rate": ruling.false_discovery_rate,
        "fixed": fixed,
        "rivals": [
            {**verdict_record(ruling.rivals[rival.id]), "statement": rival.statement}
            for rival in claim.rivals
            if rival.id in ruling.rivals
        ],
        "sensitivity": [
            {
                "factor": cell.factor,
                "value": cell.value,
                "flips": cell.flips,
                **verdict_record(cell.verdict),
            }
            for cell in ruling.sensitivity
        ],
        "multiverse": None if ruling.multiverse is None else _multiverse_record(ruling.multiverse),
        **({"originals": [asdict(each) for each in ruling.originals]} if ruling.originals else {}),
    }


def _multiverse_record(multiverse: Multiverse) -> dict[str, Any]:
    """Counts, and of every combination its choices and numbers."""
    return {
        "n_combinations": multiverse.n_combinations,
        "n_drawn": multiverse.n_drawn,
        "n_agreeing": multiverse.n_agreeing,
        "n_opposed": multiverse.n_opposed,
        "universes": [
            {"choices": dict(each.choices), "outcome": each.outcome, "fault": each.fault, "n": each.verdict.n}
            | _numbers(each.verdict)
            for each in multiverse.universes
        ],
    }


def write_rulings(rulings: Sequence[Ruling], path: Path) -> None:
    """Write rulings as JSON: a list of records, of a trial or of a session of tests."""
    content = json.dumps([ruling_record(ruling) for ruling in rulings], indent=2, allow_nan=False)
    write_atomically(path, (content + "\n").encode())


def verdict_record(verdict: Verdict) -> dict[str, Any]:
    """A verdict as plain data for JSON."""
    return {
        "id": verdict.id,
        "outcome": verdict.outcome,
        **_numbers(verdict),
        "unit": verdict.unit,
        "p": _finite(verdict.p),
        "deciding": verdict.deciding,
        "n_clear": verdict.n_clear,
        "n": verdict.n,
        "n_failed": verdict.n_failed,
        "reason": verdict.reason,
        "parts": [
            {
                "name": part.name,
                **_numbers(part),
                "sd": _finite(part.sd),
                "finding": part.finding,
            }
            for part in verdict.parts
        ],
    }


def _numbers(result: Verdict | PartResult) -> dict[str, Any]:
    return {
        "share": _finite(result.share),
        "share_interval": _bounds(result.share_interval),
        "effect": _finite(result.effect),
        "effect_interval": _bounds(result.effect_interval),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _bounds(interval: Interval) -> list[float | None]:
    return [_finite(interval.low), _finite(interval.high)]
