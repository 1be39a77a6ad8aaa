"""B14 and B14-early: memories beside parts that are held at their ideal form, and the ideal output."""

from dataclasses import replace

import pytest
import torch

from mnemoscope.claims.replicates import expected_seeds
from mnemoscope.systems.in_context_bigrams.claims.held_ideal import (
    B14,
    B14_EARLY,
    EARLY_UNITS,
    FREE,
    OUTPUT,
    PREVIOUS,
    UNITS,
    forward,
)
from mnemoscope.systems.in_context_bigrams.tasks import FLOOR, InContextBigrams
from tests.systems.planting import misbehaving, verdict


def steps(free: float, output: float, previous: float) -> dict[str, dict[str, float]]:
    return {FREE: {"match": free}, OUTPUT: {"match": output}, PREVIOUS: {"match": previous}}


@pytest.mark.parametrize("claim", [B14, B14_EARLY], ids=lambda claim: claim.id)
def test_controls_behave(claim):
    assert misbehaving(claim) == {}
    for reading in claim.factors["reading"]:
        assert misbehaving(claim, reading=reading) == {}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (steps(200, 50, 200), ["SUPPORTED", "REFUTED"]),
        (steps(200, 50, 100), ["SUPPORTED", "SUPPORTED"]),
        (steps(200, 200, 50), ["REFUTED", "SUPPORTED"]),
        (steps(200, 190, 190), ["REFUTED", "REFUTED"]),
    ],
)
def test_what_decides(found, expected):
    assert B14.compare is not None
    assert [verdict(one, B14.compare(found)).outcome for one in (B14, *B14.rivals)] == expected


def test_factors_of_steps_by_hand():
    found = forward(steps(200, 50, 100))
    assert (found["output_forward"], found["previous_forward"], found["output_more"]) == (2.0, 1.0, 1.0)


def test_the_ideal_output_is_the_attention_by_token():
    task = InContextBigrams(length=8)
    (part,) = task.ideal_parts().values()
    inputs = torch.tensor([[3, 5, 3, 7]])
    pattern = torch.tensor([[[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.2, 0.3, 0.5, 0], [0.1, 0.2, 0.3, 0.4]]])
    expected = torch.full((4, task.d_vocab), FLOOR)
    expected[0, 3] += 1
    expected[1, 3] += 0.5
    expected[1, 5] += 0.5
    expected[2, 3] += 0.7
    expected[2, 5] += 0.3
    expected[3, 3] += 0.4
    expected[3, 5] += 0.2
    expected[3, 7] += 0.4
    torch.testing.assert_close(part.value(inputs, pattern)[0], expected.log())


def test_runs_differ_in_what_is_held_alone():
    free, output, previous = (UNITS[name].spec(64) for name in (FREE, OUTPUT, PREVIOUS))
    assert [list(map(str, spec.recipe.clamps)) for spec in (free, output, previous)] == [
        [],
        ["ideal perfect-output"],
        ["L0H0 pattern=pattern previous token"],
    ]
    assert free.task == output.task == previous.task
    assert free.model == output.model == previous.model


def test_early_runs_are_the_first_steps_with_each_kept():
    """Of other seeds, under the same recipe otherwise."""
    assert EARLY_UNITS.keys() == UNITS.keys()
    assert not {*expected_seeds(B14)} & {*expected_seeds(B14_EARLY)}
    for early, whole in zip(EARLY_UNITS.values(), UNITS.values(), strict=True):
        short, long = early.spec(80).recipe, whole.spec(80).recipe
        assert short.checkpoints == tuple(range(121))
        assert short == replace(long, n_steps=120, checkpoint_steps=short.checkpoint_steps)
        assert long.decay == "constant", "else the first steps would depend on their number"
