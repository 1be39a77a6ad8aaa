import json
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from mnemoscope.claims.claim import Control, Criterion, Gate
from mnemoscope.claims.judge import judge
from mnemoscope.claims.registration import Superseded
from mnemoscope.claims.ruling import Ruling, SensitivityCell, ruling_record
from mnemoscope.core.clamp import Clamp
from mnemoscope.core.presets import Configuration
from mnemoscope.report.rulings.words import describe_changed_favourites
from tests.claims.trials import along_seeds, clearing, make_claim, make_evidence


def rule(claim, evidence, **fields) -> Ruling:
    return Ruling(claim=claim, evidence=evidence, verdict=judge(claim, evidence), rivals={}, **fields)


def test_a_cell_flips_where_another_outcome_comes_up():
    claim = make_claim()
    ruling = rule(claim, make_evidence(clearing(16, 16)))
    for n_clear, n, flips in ((16, 16, False), (0, 16, True), (8, 16, True), (4, 4, False)):
        verdict = judge(claim, make_evidence(clearing(n_clear, n)))
        assert (
            SensitivityCell(factor="kind", value="zero", verdict=verdict, before=ruling.verdict.outcome).flips == flips
        )


def test_a_record_has_the_clamps_of_its_units_as_text():
    held = Configuration(preset="k-hop-4", changes=(("recipe.clamps", (Clamp(place="L0 attn_out", value="zero"),)),))
    ruling = rule(make_claim(units={"held": held}), make_evidence(clearing(16, 16)))
    unit = json.loads(json.dumps(ruling_record(ruling)))["units"]["held"]
    assert unit == {"preset": "k-hop-4", "recipe": "quick", "recipe.clamps": ["L0 attn_out=zero"]}


def test_the_reason_begins_with_what_another_training_decides():
    """Not with other ways to measure, changes that decide nothing, or cells of rivals."""
    claim, rival = make_claim(), make_claim(id="T0-other")
    untrained = {"untrained": xr.DataArray(np.zeros(4), dims="case")}
    tested = make_claim(controls=(Control(name="untrained", kind="negative"),))
    ruling = rule(tested, make_evidence(clearing(1, 16), controls=untrained))
    assert ruling.reason == ruling.verdict.reason
    cells = tuple(
        SensitivityCell(
            factor=factor,
            value=value,
            verdict=judge(asked, make_evidence(clearing(n_clear, n))),
            before=ruling.verdict.outcome,
        )
        for factor, value, asked, n_clear, n in (
            ("recipe", "quick", claim, 17, 17),
            ("recipe", "sgd", claim, 0, 16),
            ("recipe", "long", claim, 15, 15),
            ("recipe", "quick", rival, 16, 16),
            ("kind", "zero", claim, 16, 16),
            ("model.d_model", "64", claim, 8, 16),
        )
    )
    ruling = replace(ruling, sensitivity=cells)
    assert ruling.reason == ruling_record(ruling)["reason"]
    assert ruling.reason == (
        "Under the quick recipe it is SUPPORTED (17 of 17 seeds). With model.d_model = 64 it is MIXED (8 of 16 seeds). "
        "The effect is above 0.25 logits in 1 of 16 seeds."
    )


def test_a_record_names_the_recipe_that_the_verdict_speaks_of():
    evidence = make_evidence(clearing(16, 16))
    assert ruling_record(rule(make_claim(), evidence))["recipe"] is None
    units = {"v3": Configuration(preset="v3", recipe="published")}
    assert ruling_record(rule(make_claim(units=units), evidence))["recipe"] == "published"


def test_slack_is_that_of_the_weakest_part_or_of_the_strongest():
    effects = along_seeds(np.ones(16)).to_dataset(name="a").assign(b=along_seeds(np.full(16, -1.0)))
    parts = (Criterion(name="a", quantifier="most", margin=0.5), Criterion(name="b", quantifier="most", margin=0.5))
    for joined, slack in (("all", -1.5), ("any", 0.5)):
        claim = make_claim(None, parts=parts, joined=joined)
        assert rule(claim, make_evidence(effects)).slack().values.tolist() == [slack] * 16


def test_replicates_that_fail_the_gate_are_neither_typical_nor_deviating():
    values = np.concatenate([np.full(16, 2.0), [-5.0]])
    claim = make_claim(gate=Gate(statement="g", at_least=1))
    gate = along_seeds(np.concatenate([np.ones(16), [0.0]]))
    ruling = rule(claim, make_evidence(values, gate=gate))
    assert ruling.deviating() is None
    assert ruling.typical() in range(16)


def test_prompts_are_averaged_for_the_slack():
    effects = np.tile([0.0, 2.0], (16, 1))
    ruling = rule(make_claim(), make_evidence(effects, prompts="own"))
    assert ruling.slack().values.tolist() == pytest.approx([0.75] * 16)


def test_a_record_is_strict_json():
    claim = make_claim(rivals=(make_claim(id="T0-other", direction="below"),))
    few = make_evidence(clearing(3, 3))
    ruling = Ruling(
        claim=claim,
        evidence=few,
        verdict=judge(claim, few),
        rivals={"T0-other": judge(claim.rivals[0], few)},
        sensitivity=(SensitivityCell(factor="kind", value="zero", verdict=judge(claim, few), before="REFUTED"),),
        superseded=(Superseded(reason="r", outcome="REFUTED", share=0.5, n=8),),
    )
    content = json.loads(json.dumps(ruling_record(ruling), allow_nan=False))
    assert content["p"] is None
    assert content["outcome"] == "NOT_APPLICABLE"
    assert content["rivals"][0]["id"] == "T0-other"
    assert content["sensitivity"][0]["flips"] is False
    assert content["effect"] == 0.75
    assert content["superseded"] == [{"reason": "r", "outcome": "REFUTED", "share": 0.5, "n": 8, "recipe": None}]


def test_a_change_under_which_another_explanation_is_favoured_is_named():
    """Only if every one of them was asked, and decided."""
    claim, rival = make_claim(), make_claim(id="T0-other", direction="below")
    up, down = make_evidence(clearing(16, 16)), make_evidence(clearing(0, 16))

    def cell(asked, evidence, value):
        return SensitivityCell(factor="kind", value=value, verdict=judge(asked, evidence), before="SUPPORTED")

    ruling = Ruling(
        claim=claim,
        evidence=up,
        verdict=judge(claim, up),
        rivals={"T0-other": judge(rival, up)},
        sensitivity=(
            *(cell(asked, down, "zero") for asked in (claim, rival)),
            *(cell(asked, up, "resample") for asked in (claim, rival)),
            cell(claim, down, "asked of the claim alone"),
            *(cell(asked, make_evidence(clearing(3, 3)), "too few") for asked in (claim, rival)),
        ),
    )
    assert ruling.favoured == ("T0",)
    assert ruling.favoured_otherwise == (("kind", "zero", ("T0-other",)),)
    assert ruling_record(ruling)["favoured_otherwise"] == [
        {"factor": "kind", "value": "zero", "favoured": ["T0-other"]}
    ]
    assert describe_changed_favourites(ruling) == ["⚑ With kind = zero the evidence favours T0-other."]
