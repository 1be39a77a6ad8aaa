"""Running sums: answers, latents, minimal pairs and exact predictors, against plain Python."""

import math
from itertools import accumulate

import pytest
import torch

from mnemoscope import InputError
from mnemoscope.systems.puzzles.tasks.running_sum import RunningSum
from tests.support import seeded

TASK = RunningSum()


def sample(n=60):
    return TASK.sample(n, split="train", generator=seeded())


def values(row):
    return [token - 11 if token > 5 else token for token in row]


def sign(number):
    return (number > 0) - (number < 0)


def test_the_answer_is_the_sign_of_the_sum_so_far():
    batch = sample()
    for row, answers, latents in zip(
        batch.inputs.tolist(), batch.targets.tolist(), batch.latents["sum"].tolist(), strict=True
    ):
        sums = [*accumulate(values(row))]
        assert latents == sums
        assert answers == [sign(each) + 1 for each in sums]
    assert batch.scored.all()
    assert batch.classes == ("negative", "zero", "positive")
    assert [batch.symbol(token) for token in (0, 1, 5, 6, 10)] == ["0", "+1", "+5", "-5", "-1"]
    assert torch.equal(batch.latents["mean"][:, -1], batch.latents["sum"][:, -1] / 20)


def test_values_turn_against_the_sum_with_probability_seven_tenths():
    batch = sample(2000)
    before, value = batch.latents["sum"][:, :-1].sign(), batch.latents["value"][:, 1:]
    moved = (before != 0) & (value != 0)
    assert float((value.sign() == -before)[moved].double().mean()) == pytest.approx(0.7, abs=0.01)
    assert value.abs().flatten().bincount().double().div(value.numel()).numpy() == pytest.approx(1 / 6, abs=0.01)


@pytest.mark.parametrize(("kind", "changed"), [("turn_sum", 1), ("shift_sum", 0), ("reorder", 0)])
def test_pairs_change_the_last_answer_or_keep_it(kind, changed):
    batch = sample(400)
    total = batch.latents["sum"][:, -1].abs()
    batch = batch.select((total <= 2) & ((total > 0) | (kind != "shift_sum")))
    other = TASK.corrupt(batch, kind=kind, generator=seeded(1))
    assert TASK.pair_report(batch, other) == {"answer_changed": changed}
    differ = (batch.inputs != other.inputs).sum(1)
    same_sum = batch.latents["sum"][:, -1] == other.latents["sum"][:, -1]
    if kind == "reorder":
        assert same_sum.all()
        assert torch.equal(batch.inputs.sort(1).values, other.inputs.sort(1).values)
    else:
        assert differ.tolist() == [1] * len(batch)
        assert not same_sum.any()


def test_as_many_values_are_turned_as_it_takes():
    far = TASK.batch(torch.full((1, 20), 5))
    other = TASK.corrupt(far, kind="turn_sum", generator=seeded())
    assert int((other.inputs != far.inputs).sum()) == 10
    assert TASK.pair_report(far, other) == {"answer_changed": 1}


def test_a_sum_of_zero_stays_zero_where_values_shift():
    batch = sample(400)
    batch = batch.select(batch.latents["sum"][:, -1] == 0)
    other = TASK.corrupt(batch, kind="shift_sum", generator=seeded())
    assert (other.latents["sum"][:, -1] == 0).all()
    assert (batch.inputs != other.inputs).sum(1).tolist() == [2] * len(batch)


@pytest.mark.parametrize(
    ("name", "loss"), [("uniform", math.log(3)), ("answer", 0), ("nonzero", math.inf), ("last_value", math.inf)]
)
def test_references_know_what_they_are_named_for(name, loss):
    batch = sample()
    found = TASK.reference(batch, name)
    of_answers = found.gather(-1, batch.targets[..., None])[..., 0]
    assert -of_answers.log().mean().item() == pytest.approx(loss)
    assert found.sum(-1).numpy() == pytest.approx(1)


def test_the_last_value_and_the_sign_are_references_by_hand():
    batch = TASK.parse("3 -3 -2 5")
    assert batch.targets.tolist() == [[2, 1, 0, 2]]
    assert TASK.reference(batch, "last_value").argmax(-1).tolist() == [[2, 0, 0, 2]]
    assert TASK.reference(batch, "nonzero")[0, :2].tolist() == [[0, 0, 1], [0.5, 0, 0.5]]
    with pytest.raises(InputError, match="a value must be one of"):
        TASK.parse("3 6")


def test_what_cannot_be_asked_is_refused():
    for fields, words in (
        ({"largest": 0}, r"task\.largest"),
        ({"length": 1}, r"task\.length"),
        ({"opposite": 2}, "opposite"),
    ):
        with pytest.raises(InputError, match=words):
            RunningSum(**fields)
    with pytest.raises(InputError, match="split must be one of"):
        TASK.sample(3, split="validation", generator=seeded())
