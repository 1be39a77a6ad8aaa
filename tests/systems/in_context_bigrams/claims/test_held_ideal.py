"""B14: memories beside parts that are held at their ideal form, and the ideal output."""

import pytest
import torch

from mnemoscope.systems.in_context_bigrams.claims.held_ideal import B14, FREE, OUTPUT, PREVIOUS, UNITS, forward
from mnemoscope.systems.in_context_bigrams.tasks import FLOOR, InContextBigrams
from tests.systems.planting import misbehaving, verdict


def steps(free: float, output: float, previous: float) -> dict[str, dict[str, float]]:
    return {FREE: {"match": free}, OUTPUT: {"match": output}, PREVIOUS: {"match": previous}}


def test_controls_behave():
    assert misbehaving(B14) == {}
    for reading in B14.factors["reading"]:
        assert misbehaving(B14, reading=reading) == {}


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
