"""What the claims measure, on a small model with rotary positions and shared keys, and where an answer is known."""

from dataclasses import replace

import numpy as np
import pytest

import mnemoscope as ms
from mnemoscope.claims.claim import CLAIMS, GATE
from mnemoscope.systems.language_models import constructed, name_circuit, prompts, reading
from mnemoscope.systems.language_models.prompts import givers
from tests.systems.on_trial import trouble


@pytest.fixture(scope="module")
def untrained():
    return constructed.untrained(0)["model"]


@pytest.mark.full
@pytest.mark.parametrize("id", ["G1", "G2", "G2-lead", "G3", "G4", "G5", "G6"])
def test_every_question_has_all_effects_and_a_gate(id, untrained):
    claim = CLAIMS.get(id)
    assert claim.measure is not None
    found = claim.measure(untrained)
    named = {GATE, *(part.name for one in (claim, *claim.rivals) for part in one.criteria)}
    assert named <= set(found)
    (n,) = {len(np.asarray(values)) for values in found.values()}
    assert n >= claim.n_replicates
    assert all(np.isfinite(values).all() for values in found.values())


@pytest.mark.parametrize(("id", "factor", "value"), [
    ("G3", "text", "people"), ("G4", "names", "rare"), ("G6", "stories", "talking"), ("G5", "relations", "namesakes"),
])  # fmt: skip
def test_controls_behave_under_sets_whose_words_they_do_not_know(id, factor, value):
    claim = CLAIMS.get(id)
    assert value in claim.factors[factor]
    positive = replace(claim, controls=tuple(control for control in claim.controls if control.kind == "positive"))
    assert trouble(positive, **{factor: value}) is None


def test_the_lead_is_taken_at_scored_positions_whatever_the_rows_of_a_pass(untrained, monkeypatch):
    batch = prompts.repeated(untrained, n=5, seed=1)
    foil = prompts.other_words(batch, seed=1)
    lead, right = reading.ahead(untrained, batch, foil)
    monkeypatch.setattr(reading, "ROWS", 2)
    assert np.allclose(reading.ahead(untrained, batch, foil)[0], lead, atol=1e-5)
    logits = untrained(batch.inputs).detach()
    for row in range(5):
        at = batch.scored[row].nonzero()[:, 0]
        due, other = (logits[row, at, tokens[row, at]] for tokens in (batch.targets, foil))
        assert lead[row] == pytest.approx(float((due - other).mean()), abs=1e-4)
        hits = logits[row, at].argmax(1) == batch.targets[row, at]
        assert right[row] == pytest.approx(float(hits.float().mean()))


def test_random_heads_are_as_many_per_layer_none_named_and_from_the_nearest_layer_where_none_is_left():
    model = constructed.untrained(0)["model"]
    like, named = [(1, 0), (1, 2), (3, 3)], [(1, 1)]
    sets = reading.random_heads(model, like, named=named)
    assert len(sets) == 20
    assert len({tuple(drawn) for drawn in sets}) > 5
    for drawn in sets:
        assert [layer for layer, _ in drawn] == [0, 1, 3]  # of layer 1 only head 3 is left
        assert not {*drawn} & {*like, *named}
        assert len({*drawn}) == 3
    every = [(layer, head) for layer in range(4) for head in range(4)]
    assert reading.random_heads(model, every, n=2) == [[], []]


def test_a_set_beside_random_ones_is_compared_with_their_mean_and_with_the_largest():
    found = reading.beside_random([np.array([1.0, 0.5]), np.array([0.2, 0.0]), np.array([0.4, 0.6])])
    assert np.allclose(found["effect"], [0.7, 0.2])
    assert np.allclose(found["beyond"], [0.6, -0.1])
    assert np.allclose(found["lost_random"], [0.3, 0.3])


def test_heads_are_found_where_they_were_put():
    model = constructed.copying(0)["model"]
    assert reading.by_score(model, "induction") == [(1, 0)]
    assert reading.by_score(model, "previous token", below=1) == [(0, 0)]
    naming = constructed.naming(0)["model"]
    batch = givers(naming, n=8, seed=0).clean
    scores = name_circuit.name_copying(naming, batch)
    assert reading.highest(scores, 1) == [(2, 0)]
    assert float(scores.sel(layer=2, head=0)) == pytest.approx(1.0, abs=1e-3)
    due, first, again = name_circuit.attention_from_last(naming, batch, [(2, 0)], ("IO", "S1", "S"))[:, 0]
    assert np.allclose(due, 1, atol=1e-3)
    assert np.allclose(first + again, 0, atol=1e-3)


def test_a_head_that_copies_the_name_it_attends_to_copies_the_other_one_where_these_are_exchanged():
    for model, expected in ((constructed.naming(0)["model"], -20), (constructed.relaying(0)["model"], 20)):
        pairs = givers(model, n=8, seed=0)
        exchanged = name_circuit.exchanged_attention(model, pairs.clean, [(3, 0) if expected > 0 else (2, 0)])
        assert np.allclose(reading.ahead(model, pairs.clean, pairs.foil)[0], 20, atol=1e-2)
        assert np.allclose(reading.ahead(model, pairs.clean, pairs.foil, exchanged)[0], expected, atol=1e-2)


def test_what_is_lost_of_little_is_a_share_of_the_least():
    clean, left = np.array([4.0, 0.1]), np.array([1.0, 0.0])
    assert reading.lost(clean, left, 1.0).tolist() == [0.75, 0.1]


@pytest.mark.full
def test_a_claim_can_be_tried_from_python(tmp_path):
    from tests.language_models import save

    small = save("llama", tmp_path)
    (ruling,) = ms.run_trials([CLAIMS.get("G1")], [], models=[small], sensitivity=False)
    assert ruling.verdict.outcome == "NOT_APPLICABLE"
    assert ruling.verdict.n_failed == prompts.N_SEQUENCES
    assert ruling.departures == ()
