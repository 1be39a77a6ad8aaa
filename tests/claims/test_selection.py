"""How replicates were chosen is reported: seeds that are missing, earlier looks, gates that know the outcome."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from mnemoscope.claims.claim import CLAIMS, Claim, Gate
from mnemoscope.claims.evidence import Evidence
from mnemoscope.claims.replicates import admit_runs, expected_seeds
from mnemoscope.claims.selection import describe_selection, gate_findings, missing_seeds, note_look, read_looks
from mnemoscope.core.presets import Configuration
from mnemoscope.models.run import create_run
from tests.claims.trials import along_seeds, make_claim, make_evidence

GATE = Gate(statement="passes", at_least=0.5)
D4, D8 = (Configuration(preset=name) for name in ("d4", "d8"))


def ended_runs(place: Path, unit: Configuration, seeds, *, ended: bool = True):
    runs = [create_run(place / f"{unit.preset}-{seed}", unit.spec(seed)) for seed in seeds]
    for run in runs if ended else ():
        (run.path / "done").touch()
    return runs


def missing(claim: Claim, runs) -> str:
    return "; ".join(missing_seeds(claim, admit_runs(runs, [claim])))


def test_runs_left_out_between_those_handed_in_are_named(tmp_path):
    """27 good ones of 48."""
    claim = make_claim(units={"narrow": D4})
    seeds = sorted({0, 47, *np.random.default_rng(0).choice(48, 27, replace=False).tolist()})
    found = missing(claim, ended_runs(tmp_path, D4, seeds))
    assert "between 0 and 47, were not handed in" in found
    left = set(range(48)) - set(seeds)
    assert all(str(seed) in found for seed in list(left)[:1])
    assert missing(claim, ended_runs(tmp_path, D4, range(48))) == ""
    assert "begin at 5" in missing(claim, ended_runs(tmp_path, D4, range(5, 30)))


def test_planned_seeds_of_a_registered_claim_that_are_missing_are_named(tmp_path):
    claim = CLAIMS.get("T14")
    (unit,) = claim.units.values()
    seeds = expected_seeds(claim)
    found = missing(claim, ended_runs(tmp_path, unit, seeds[:-2]))
    assert "which are planned, were not handed in" in found
    assert str(seeds[-1]) in found
    assert missing(claim, ended_runs(tmp_path, unit, seeds)) == ""


def test_runs_that_did_not_end_are_no_gap_and_half_pairs_are_named(tmp_path):
    claim = make_claim(units={"narrow": D4})
    runs = ended_runs(tmp_path, D4, [0, 1, 3]) + ended_runs(tmp_path, D4, [2], ended=False)
    assert missing(claim, runs) == ""
    both = make_claim(units={"narrow": D4, "wide": D8}, compare=max)
    runs = ended_runs(tmp_path, D4, [0, 1, 3]) + ended_runs(tmp_path, D8, [0, 1])
    assert "of seeds 3 there are runs of some of its configurations only" in missing(both, runs)


def gated(gate, effects) -> str:
    return "; ".join(gate_findings(make_claim(gate=GATE), make_evidence(np.asarray(effects), gate=along_seeds(gate))))


def test_a_gate_that_is_the_outcome_is_named():
    effects = np.random.default_rng(0).normal(size=48)
    assert "the gate is the outcome" in gated(effects, effects)
    assert "the gate is the outcome" in gated(np.exp(effects), effects)
    assert "divides the effects without overlap" in gated((effects > 0).astype(float), effects)


@pytest.mark.parametrize("correlation", [0.5, 0.8])
def test_a_gate_that_goes_with_the_outcome_is_found(correlation):
    draws, found = np.random.default_rng(1), 0
    for _ in range(50):
        effects, noise = draws.normal(size=(2, 48))
        gate = correlation * effects + (1 - correlation**2) ** 0.5 * noise + 0.5
        found += "it may choose what meets the criterion" in gated(gate, effects)
    assert found >= (30 if correlation == 0.5 else 49)


def test_a_gate_that_knows_nothing_is_seldom_suspected():
    draws = np.random.default_rng(2)
    found = [gated(*draws.normal(0.5, size=(2, 32))) for _ in range(200)]
    assert sum("may choose" in each for each in found) <= 18, "5 % of 200, and the error of that"
    assert any("does not go with the effect" in each for each in found)


def test_what_cannot_be_tested_of_a_gate_is_said():
    effects = np.random.default_rng(3).normal(size=16)
    assert "every seed passes" in gated(np.ones(16), effects)
    assert "fewer than 3" in gated(np.arange(16) > 0, effects)
    unknown = np.where(np.arange(16) < 8, np.nan, effects)
    assert "effects of seeds that fail are not known" in gated(np.arange(16) >= 8, unknown)
    assert gated((np.arange(16) >= 8), np.ones(16)).startswith("the gate does not go with the effect")
    assert gate_findings(make_claim(), make_evidence(effects)) == []


def test_looks_at_fewer_seeds_and_seeds_left_out_later_are_counted(tmp_path):
    """Optional stopping: a look after each seed."""
    claim = make_claim()
    assert note_look(claim, list(range(16)), tmp_path) == []
    assert note_look(claim, list(range(16)), tmp_path) == [], "the same look again is none"
    assert len(read_looks(tmp_path / "looks.jsonl")) == 1
    note_look(claim, list(range(20)), tmp_path)
    (found,) = note_look(claim, list(range(24)), tmp_path)
    assert found.startswith("2 earlier looks at fewer seeds (16, 20)")
    (_, dropped) = note_look(claim, list(range(18)), tmp_path)
    assert dropped == "measured in an earlier look and left out now: seeds 18–23"
    assert note_look(replace(claim, id="T1"), [0], tmp_path) == [], "another claim"
    assert "1 other question of the same id" in note_look(replace(claim, margin=0.1), list(range(24)), tmp_path)[-1]


def test_all_of_it_is_said_of_a_claim(tmp_path):
    claim = make_claim(units={"narrow": D4}, gate=GATE)
    runs = ended_runs(tmp_path, D4, [0, 2, 3])
    evidence = Evidence(
        effects=xr.DataArray([1.0, 2.0, 3.0], coords={"seed": [0, 2, 3]}),
        gate=xr.DataArray([1.0, 1.0, 1.0], coords={"seed": [0, 2, 3]}),
    )
    found = describe_selection(claim, evidence, admit_runs(runs, [claim]), tmp_path / "store")
    assert [each.split()[0] for each in found] == ["seeds", "every"]
    assert (tmp_path / "store" / "looks.jsonl").exists()
