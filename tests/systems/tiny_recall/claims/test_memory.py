from dataclasses import replace

import numpy as np
import pytest

from mnemoscope.analyses.evaluation import every_sequence
from mnemoscope.core.presets import Configuration
from mnemoscope.models.subjects import untrained
from mnemoscope.systems.tiny_recall.claims.memory import CLAIM, combines, measure, repeats, without_mlp, without_paths
from mnemoscope.systems.tiny_recall.constructed import dissociated, shared_store, store_and_match, two_layer_recall
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.systems.on_trial import on, trouble, verdict

RIVALS = {rival.id: rival for rival in CLAIM.rivals}
SMALL = PermutationLookup(n_values=4, repeat_ratio=0.3)


def small(make, seed=0):
    return on(make(4), SMALL, seed)


def test_the_prompts_are_all_repeats_and_know_the_source_pair():
    task = SMALL.for_seed(0)
    batch = repeats(task)
    assert len(batch) == 5 * 24 * 3  # unseen mappings, orders, source slots
    x, y = (batch.inputs.gather(1, batch.latents[key][:, None])[:, 0] for key in ("source_pos", "source_y"))
    assert (x == batch.inputs[:, -1]).all()
    assert (y == batch.targets[:, -1]).all()
    assert "source_y" not in every_sequence(task).latents


def test_a_store_that_is_read_at_x_and_at_y():
    """Head 1 must see the source x; head 0 must see the source y, and without it the value looks unused."""
    found = measure(small(shared_store))
    assert found["source x"] == pytest.approx(1)
    assert found["source y"] == pytest.approx(0.5, abs=0.1)  # one of two values that look unused: a tie
    assert found["mlp"] == pytest.approx(1)
    assert found["stored"] == pytest.approx(-0.75)
    assert found["gate"] == 1


def test_a_pair_that_is_read_at_its_y_only():
    found = measure(small(dissociated))
    assert found["source x"] == 0
    assert found["pair"] == found["source y"] == pytest.approx(0.5, abs=0.1)
    assert found["stored"] == pytest.approx(found["source y"] - 0.25)


def test_attention_without_an_mlp():
    subject = small(two_layer_recall)
    assert [without_mlp(subject, kind=kind) for kind in ("mean", "zero", "resample")] == [0, 0, 0]
    assert without_paths(subject)["source y"] > 0.4  # layer 0 reads the x, long before the last position


@pytest.mark.parametrize("direction", ["denoising", "noising"])
def test_what_stood_where_and_where_the_match_is_in_two_heads(direction):
    found = combines(small(store_and_match), direction=direction)
    shares = [found[f"{what}, H{head}"] for what in ("what stood where", "where the match is") for head in (0, 1)]
    np.testing.assert_allclose(shares, [1, 0, 0, 1], atol=0.01)
    assert found["effect"] == pytest.approx(0.5, abs=0.01)
    assert combines(small(dissociated), direction=direction)["effect"] < 0


def test_nothing_is_lost_without_training():
    subject = untrained({"v3": Configuration(preset="v3-4-values")})(0)["v3"]
    found = measure(replace(subject, task=SMALL.for_seed(3)))
    assert max(map(abs, (found["pair"], found["mlp"]))) < 0.25
    assert found["gate"] < 0.9


@pytest.mark.parametrize("kind", ["mean", "zero", "resample"])
def test_controls_behave(kind):
    for claim in (CLAIM, *CLAIM.rivals):
        assert trouble(claim, most=1, kind=kind) is None
    assert trouble(RIVALS["T17-combines"], most=1, direction="noising") is None


@pytest.mark.parametrize(
    ("make", "favoured"),
    [
        (store_and_match, {"T17-combines"}),
        (dissociated, {"T17-stored"}),
        (two_layer_recall, {"T17-attention", "T17-stored"}),
    ],
)
def test_other_mechanisms_refute_it_and_support_their_rival(make, favoured):
    found = {}
    for claim in (CLAIM, *CLAIM.rivals):
        found[claim.id] = verdict(claim, [claim.measure(small(make, seed)) for seed in range(3)]).outcome
    assert found.pop("T17") == "REFUTED"
    assert {name for name, outcome in found.items() if outcome == "SUPPORTED"} == favoured


@pytest.mark.parametrize(
    ("pair", "mlp", "expected"),
    [(0.0, 1.0, "SUPPORTED"), (1.0, 1.0, "REFUTED"), (0.0, 0.0, "REFUTED"), (0.25, 0.25, "INCONCLUSIVE")],
)
def test_tables_of_effects(pair, mlp, expected):
    assert verdict(CLAIM, {"pair": pair, "mlp": mlp, "gate": 1.0}).outcome == expected


def test_models_that_have_not_learned_are_not_judged():
    assert verdict(CLAIM, {"pair": 0.0, "mlp": 1.0, "gate": 0.98}).outcome == "NOT_APPLICABLE"
