import pytest

from mnemoscope.systems.in_context_bigrams.analyses.evaluation import prompts
from mnemoscope.systems.in_context_bigrams.claim_parts import FIXED_TRIGGERS, any_token
from mnemoscope.systems.in_context_bigrams.claims.output_distribution import (
    B8,
    BIGRAM,
    N_SEQUENCES,
    UNIFORM,
    by_training,
    knows_the_bigrams,
    measure,
)
from tests.systems.on_trial import on, verdict
from tests.systems.planting import misbehaving


def ruled(uniform, bigram):
    """Verdicts, given the accuracy of both on uniform outputs and on those of the bigrams."""
    names = ("uniform", "bigram")
    found = by_training(
        {
            UNIFORM: dict(zip(names, uniform, strict=True)),
            BIGRAM: dict(zip(names, bigram, strict=True)),
        }
    )
    return [verdict(claim, found).outcome for claim in (B8, *B8.rivals)]


def test_who_knows_the_bigrams_is_right_where_the_output_is_the_likely_one():
    found = measure(on(knows_the_bigrams(), FIXED_TRIGGERS))
    likely = FIXED_TRIGGERS.bigrams.transitions.argmax(1)
    for outputs, accuracy in found.items():
        batch = prompts(FIXED_TRIGGERS, 0, N_SEQUENCES, outputs=outputs)
        counts = batch.latents["occurrence"] > 1
        right = likely[batch.inputs] == batch.targets
        assert accuracy == pytest.approx(float(right[counts].double().mean()))
    assert found["bigram"] > found["uniform"] + 0.1


def test_who_reads_the_context_is_right_on_both():
    assert measure(on(any_token(), FIXED_TRIGGERS)) == {"uniform": 1, "bigram": 1}


def test_effects_by_hand():
    found = by_training({UNIFORM: {"uniform": 0.75, "bigram": 0.5}, BIGRAM: {"uniform": 1.0, "bigram": 0.875}})
    assert (found["on_uniform"], found["even_on_bigram"], found["gap"]) == (-0.25, 0.25, 0.25)
    assert found["memories-all on bigram"] == 0.5


@pytest.mark.parametrize(
    ("uniform", "bigram", "expected"),
    [
        ((0.95, 0.94), (0.60, 0.90), ["SUPPORTED", "REFUTED"]),
        ((0.95, 0.70), (0.60, 0.90), ["REFUTED", "REFUTED"]),  # better on uniform outputs, but not elsewhere
        ((0.95, 0.94), (0.92, 0.95), ["REFUTED", "SUPPORTED"]),
        ((0.60, 0.90), (0.95, 0.94), ["REFUTED", "REFUTED"]),
        ((0.95, 0.94), (0.85, 0.95), ["INCONCLUSIVE", "INCONCLUSIVE"]),  # a margin apart
    ],
)
def test_what_decides(uniform, bigram, expected):
    assert ruled(uniform, bigram) == expected


def test_controls_behave():
    assert misbehaving(B8) == {}


def test_controls_behave_without_loops():
    assert misbehaving(B8, loops=False) == {}
