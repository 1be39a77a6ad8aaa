"""Addition modulo p: sums, the split, latents, pairs and exact references."""

import math

import pytest
import torch

from mnemoscope import InputError
from mnemoscope.systems.modular_addition.tasks import ModularAddition
from tests.support import seeded

TASK = ModularAddition(modulus=7).for_seed(3)


@pytest.mark.parametrize("equals", [False, True])
def test_every_sum_is_in_one_split_once(equals):
    task = ModularAddition(modulus=7, equals=equals, train_share=0.6).for_seed(3)
    train, test = (task.enumerate(split=split) for split in ("train", "test"))
    assert len(train) == task.n_train == round(0.6 * 49)
    pairs = {tuple(row) for batch in (train, test) for row in batch.inputs[:, :2].tolist()}
    assert pairs == {(a, b) for a in range(7) for b in range(7)}
    assert len(train) + len(test) == 49
    for batch in (train, test):
        assert batch.weights is not None
        assert float(batch.weights.sum()) == pytest.approx(1)
        assert batch.scored.sum(1).tolist() == [1] * len(batch)
        for (a, b, *rest), target in zip(batch.inputs.tolist(), batch.targets[:, -1].tolist(), strict=True):
            assert (target, rest) == ((a + b) % 7, [7] * equals)


def test_the_split_follows_its_seed():
    assert torch.equal(TASK.trained(), ModularAddition(modulus=7, split_seed=3).for_seed(9).trained())
    assert not torch.equal(TASK.trained(), ModularAddition(modulus=7).for_seed(4).trained())
    with pytest.raises(InputError, match="split_seed is not set"):
        ModularAddition(modulus=7).trained()


def test_samples_and_monitored_sums_are_of_their_split():
    for split, trains in (("train", True), ("test", False)):
        drawn = TASK.sample(200, split=split, generator=seeded())
        seen = TASK.monitor(512, split=split, generator=seeded())
        for batch in (drawn, seen):
            assert (TASK.trained()[batch.latents["a"], batch.latents["b"]] == trains).all()
        assert len(seen) == (39 if trains else 10)
        assert len({tuple(row) for row in seen.inputs.tolist()}) == len(seen)
    assert len(TASK.monitor(4, split="test", generator=seeded())) == 4


def test_latents_of_the_table():
    batch = TASK.table()
    assert batch.inputs[10].tolist() == [1, 3]
    assert {name: int(value[10]) for name, value in batch.latents.items()} == {
        "a": 1, "b": 3, "sum": 4, "difference": 5
    }  # fmt: skip
    assert ModularAddition(modulus=7, equals=True).symbols == [*map(str, range(7)), "="]


STAY = {
    "other_a": {"b"},
    "other_b": {"a"},
    "other_sum": {"difference"},
    "other_difference": {"sum"},
    "exchanged": {"sum"},
}


@pytest.mark.parametrize("kind", TASK.corruptions)
def test_pairs_change_what_they_are_named_for(kind):
    batch = TASK.sample(300, split="train", generator=seeded())
    if kind == "exchanged":
        batch = batch.select(batch.latents["difference"] != 0)
    other = TASK.corrupt(batch, kind=kind, generator=seeded(1))
    same = {name for name in batch.latents if torch.equal(batch.latents[name], other.latents[name])}
    never = {name for name in batch.latents if (batch.latents[name] != other.latents[name]).all()}
    assert same == STAY[kind]
    if kind != "exchanged":
        assert same | never == set(batch.latents)
    report = TASK.pair_report(batch, other)
    assert report["answer_changed"] == ("sum" not in same)
    assert 0 < report["in_training"] < 1


def test_references():
    batch = TASK.table()
    right = {}
    for name in TASK.references:
        given = TASK.reference(batch, name)
        assert given[:, 0].isnan().all()
        assert torch.allclose(given[:, 1].sum(-1), torch.ones(49, dtype=torch.double))
        right[name] = float(given[:, 1].gather(1, batch.targets[:, 1:]).mean())
    trained = 39 / 49
    assert right == pytest.approx({"uniform": 1 / 7, "training_set": trained + (1 - trained) / 7, "sum": 1})


def test_the_loss_is_in_float64():
    batch = TASK.table()
    assert TASK.loss(torch.zeros(49, 2, 7), batch).dtype == torch.double
    assert float(TASK.loss(torch.zeros(49, 2, 7), batch)) == pytest.approx(math.log(7))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"modulus": 8}, "must be odd"),
        ({"modulus": 1}, "task.modulus"),
        ({"train_share": 1.0}, "task.n_train"),
        ({"train_share": 0.0}, "task.n_train"),
    ],
)
def test_other_fields_are_refused(fields, words):
    with pytest.raises(InputError, match=words):
        ModularAddition(**fields)


def test_there_is_no_other_split_kind_or_reference():
    with pytest.raises(InputError, match="split must be one of"):
        TASK.sample(3, split="validation", generator=seeded())
    with pytest.raises(InputError, match="kind must be one of"):
        TASK.corrupt(TASK.table(), kind="other", generator=seeded())
    with pytest.raises(InputError, match="reference must be one of"):
        TASK.reference(TASK.table(), "difference")
