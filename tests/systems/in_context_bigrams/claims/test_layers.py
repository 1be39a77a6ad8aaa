import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.models.constructed import bigram_table
from mnemoscope.models.subjects import untrained
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import prompts
from mnemoscope.systems.in_context_bigrams.claim_parts import FIXED_TRIGGERS, any_token
from mnemoscope.systems.in_context_bigrams.claims.layers import (
    B1,
    B2,
    N_SEQUENCES,
    ONE,
    TWO,
    by_depth,
    measure,
    says_it_again,
)
from tests.systems.on_trial import on, verdict
from tests.systems.planting import misbehaving


@pytest.fixture(scope="module")
def repeating():
    return on(says_it_again(), FIXED_TRIGGERS, seed=7)


def one_layer(**found):
    return [verdict(claim, found).outcome for claim in (B1, *B1.rivals)]


def test_who_says_it_again_is_right_in_loops_only(repeating):
    found = measure(repeating)
    batch = prompts(FIXED_TRIGGERS, 7, N_SEQUENCES)
    triggers, outputs = batch.known["triggers"], batch.known["outputs"]
    looped = (triggers == outputs)[..., None] & (triggers[..., None] == batch.inputs[:, None])
    counts = batch.latents["occurrence"] > 1
    assert found["accuracy"] == pytest.approx(float((looped.any(1) & counts).sum() / counts.sum()))
    assert found["from_loops"] == pytest.approx(found["accuracy"])
    assert found["distance"] == pytest.approx(0.55 - found["accuracy"])
    assert 0.1 < found["accuracy"] < 0.3


def test_without_loops_it_is_never_right(repeating):
    assert measure(repeating, loops=False)["accuracy"] == 0


def test_the_induction_circuit_is_always_right():
    found = measure(on(any_token(), FIXED_TRIGGERS))
    assert (found["accuracy"], found["from_loops"]) == (1, 0)
    assert found["distance"] == pytest.approx(0.45)


def test_equally_likely_tokens_share():
    found = measure(on(bigram_table(torch.zeros(65, 65), 128), FIXED_TRIGGERS))
    assert found["accuracy"] == pytest.approx(1 / 65)


def test_other_positions(repeating):
    """Where a loop goes on there are more of the later occurrences."""
    second, later = (measure(repeating, positions=name)["accuracy"] for name in ("second", "later"))
    assert second == pytest.approx(1 / 65, abs=0.01)
    assert later > 0.1
    with pytest.raises(InputError, match="positions must be one of"):
        measure(repeating, positions="third")


def test_what_decides_b1():
    assert one_layer(accuracy=0.52, distance=0.03, from_loops=0.2) == ["SUPPORTED", "SUPPORTED", "REFUTED"]
    assert one_layer(accuracy=0.7, distance=0.15, from_loops=0.05) == ["REFUTED", "REFUTED", "REFUTED"]
    assert one_layer(accuracy=0.1, distance=0.45, from_loops=0.05) == ["REFUTED", "REFUTED", "SUPPORTED"]
    assert verdict(B1, {"distance": 0.1}).outcome == "INCONCLUSIVE"  # exactly at the margin


def test_what_decides_b2():
    def rule(one, two):
        found = by_depth({ONE: {"accuracy": one}, TWO: {"accuracy": two}})
        return [verdict(claim, found).outcome for claim in (B2, *B2.rivals)]

    assert rule(0.55, 0.99) == ["SUPPORTED", "SUPPORTED", "SUPPORTED"]
    assert rule(0.85, 0.95) == ["REFUTED", "SUPPORTED", "REFUTED"]
    assert rule(0.2, 0.8) == ["REFUTED", "REFUTED", "SUPPORTED"]


def test_models_that_never_learned_refute_both():
    for claim in (B1, B2):
        subjects = untrained(claim.units)(0)
        measured = {name: measure(subject) for name, subject in subjects.items()}
        effects = measured[ONE] if claim.compare is None else claim.compare(measured)
        assert verdict(claim, effects).outcome == "REFUTED"


@pytest.mark.parametrize("claim", [B1, B2], ids=lambda claim: claim.id)
def test_controls_behave(claim):
    assert misbehaving(claim) == {}


def test_controls_of_b2_behave_at_second_occurrences():
    assert misbehaving(B2, positions="second") == {}
