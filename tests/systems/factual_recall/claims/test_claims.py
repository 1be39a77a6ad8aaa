"""F1 to F4: what decides them, and whether their controls behave."""

from dataclasses import replace

import pytest
import torch
import xarray as xr

from mnemoscope import InputError, ModelSpec
from mnemoscope.models.building import build_untrained
from mnemoscope.models.constructed import Predictor
from mnemoscope.systems.factual_recall.claim_parts import DRAWN, LINEAR
from mnemoscope.systems.factual_recall.claims.convergence import F3, loss_at_end
from mnemoscope.systems.factual_recall.claims.growth import F1, F1_ATTENTION
from mnemoscope.systems.factual_recall.claims.growth import measure as measure_growth
from mnemoscope.systems.factual_recall.claims.hallucination import F4, F4_SOFTMAX, phases
from mnemoscope.systems.factual_recall.claims.mechanisms import F2, TASK, compared, measure
from mnemoscope.systems.factual_recall.constructed import fact_halves, fact_store
from tests.support import MINUTES
from tests.systems.on_trial import on, verdict
from tests.systems.planting import misbehaving

KINDS = ((0.01, 0.7), (2.0, 0.7), (0.01, 0.95))
"""Loss at the end, and what is left of it since three quarters of the steps."""


def outcomes(claim, *found):
    return [verdict(each, list(found)).outcome for each in (claim, *claim.rivals)]


@pytest.mark.parametrize(
    "claim", [F1, F1_ATTENTION, pytest.param(F2, marks=MINUTES), F3, F4, F4_SOFTMAX], ids=lambda claim: claim.id
)
def test_their_controls_behave(claim):
    assert misbehaving(claim) == {}


def model(attention, mlp, only_both=0.0, both=1.0):
    return {"attention": attention, "mlp": mlp, "both": both, "only_both": only_both, "recall_ov": 0.0}


def test_what_decides_f2():
    narrow, wide, halves = model(0.8, 0.0), model(0.1, 0.9), model(0.1, 0.1, only_both=0.7)

    def effects(*models):
        return compared(dict(zip(F2.units, models, strict=True)))

    assert effects(narrow, halves, wide)["two"] == pytest.approx(0.8)
    assert outcomes(F2, effects(narrow, halves, wide)) == ["SUPPORTED", "SUPPORTED", "REFUTED"]
    assert outcomes(F2, effects(narrow, wide, wide)) == ["SUPPORTED", "REFUTED", "REFUTED"]
    assert outcomes(F2, effects(narrow, narrow, narrow)) == ["REFUTED", "REFUTED", "SUPPORTED"]
    assert outcomes(F2, effects(wide, wide, wide)) == ["REFUTED", "REFUTED", "REFUTED"]
    unknown = effects(narrow, halves, model(0.1, 0.9, both=0.8))
    assert outcomes(F2, unknown) == ["NOT_APPLICABLE"] * 3, "no seed passes the gate"


def test_what_is_measured_for_f2():
    halves = measure(on(fact_halves(TASK), TASK))
    assert (halves["both"], halves["recall_both"]) == (1, 1)
    assert halves["only_both"] > 0.6
    stored = measure(on(fact_store(TASK), TASK), removed="resample")
    assert (stored["attention"], stored["only_both"], stored["recall_ov"]) == (1, 0, 1)
    assert stored["mlp"] < 0.1


def test_what_decides_f3():
    task = LINEAR[DRAWN].spec(0).task.for_seed(0)
    followed = xr.Dataset({"loss": ("step", [3.0, 0.5, 0.1])}, coords={"step": [0, 6144, 8192]})

    def found(reference):
        return loss_at_end(replace(on(Predictor(task, reference), task), trajectory=followed))

    assert found("fact")["loss"] == pytest.approx(0)
    relation = found("relation")
    assert relation["loss"] == relation["loss_subject"] > 1.5
    assert relation["left"] == pytest.approx(0.2)
    known, unknown, still = ({"loss": loss, "loss_subject": loss, "left": left} for loss, left in KINDS)
    assert outcomes(F3, known) == ["SUPPORTED", "REFUTED", "REFUTED"]
    assert outcomes(F3, unknown) == ["REFUTED", "SUPPORTED", "REFUTED"]
    assert outcomes(F3, still) == ["REFUTED", "REFUTED", "SUPPORTED"]
    assert outcomes(F3, *[known] * 15, unknown)[0] != "SUPPORTED", "one exception counts"


def test_seeds_of_linear_attention_share_nothing_but_the_embeddings():
    one, again, other = (LINEAR[DRAWN].spec(seed) for seed in (64, 64, 65))
    tables = [spec.task.for_seed(spec.seed).table() for spec in (one, again, other)]
    assert (tables[0] == tables[1]).all()
    assert (tables[0] != tables[2]).any()
    models = [build_untrained(spec) for spec in (one, again, other)]
    written = [model.blocks[0].attn.W_O for model in models]
    assert (written[0] == written[1]).all()
    assert (written[0] != written[2]).all()
    assert (models[0].embed.W_E == models[2].embed.W_E).all()
    large = build_untrained(replace(LINEAR[DRAWN], changes=(("model.initial_size", 0.1),)).spec(64)).blocks[0].attn.W_O
    assert float(large.detach().std()) == pytest.approx(0.1, rel=0.05)
    assert torch.allclose(large, written[0] * 1e4)


def test_the_size_of_initial_weights_belongs_to_one_hot_models():
    with pytest.raises(InputError, match=r"model\.initial_size must be"):
        replace(LINEAR[DRAWN], changes=(("model.initial_size", -1.0),)).spec(0)
    with pytest.raises(InputError, match=r"model\.initialisation with model\.initial_size must be one of: one-hot"):
        ModelSpec(initial_size=0.1)


def test_what_decides_f4():
    assert outcomes(F4, {"relation": 0.5, "subject": 0.0, "apart": 0.6}) == ["SUPPORTED", "REFUTED", "REFUTED"]
    assert outcomes(F4, {"relation": 0.0, "subject": 0.5, "apart": 0.0}) == ["REFUTED", "SUPPORTED", "SUPPORTED"]


@pytest.mark.parametrize("measure", [loss_at_end, phases])
def test_without_a_trajectory_there_is_nothing_to_follow(measure):
    task = LINEAR[DRAWN].spec(0).task.for_seed(0)
    with pytest.raises(InputError, match="track it first"):
        measure(on(Predictor(task, "fact"), task))


def test_what_decides_f1():
    assert outcomes(F1, {"law": 0.1, "width": 0.6}) == ["SUPPORTED", "REFUTED"]
    assert outcomes(F1, {"law": -0.5, "width": 0.0}) == ["REFUTED", "SUPPORTED"]
    assert outcomes(F1_ATTENTION, {"law": 0.6, "width": 1.1}) == ["REFUTED", "REFUTED"]


def test_a_draw_is_searched_at_every_width(monkeypatch):
    def train(spec, path):
        return type("Run", (), {"last_step": 0 if spec.task.n_subjects <= spec.model.d_model else 2048})

    monkeypatch.setattr("mnemoscope.run.sweep.train", train)
    found = measure_growth(3, mlp=True, largest=16)
    assert {name: n for name, n in found.items() if name.startswith("facts_")} == {
        "facts_8": 64, "facts_11": 100, "facts_16": 196,
    }  # fmt: skip
    assert found["law"] == pytest.approx(found["width"] - 0.5)
    assert found["parameters_per_fact"] == pytest.approx(12 * 16**2 / 196)
    without = measure_growth(3, mlp=False, largest=32)
    assert [name for name in without if name.startswith("facts_")] == ["facts_16", "facts_23", "facts_32"]
