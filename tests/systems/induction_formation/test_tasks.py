"""Exemplars with labels: sequences, the split, latents, pairs and exact references."""

import math

import pytest
import torch

from mnemoscope import InputError
from mnemoscope.systems.induction_formation.tasks import QUERY, FewShot
from tests.support import seeded

SMALL = FewShot(n_classes=4, n_labels=3).for_seed(3)


def test_a_labelling_has_one_number_and_a_number_one_labelling():
    every = torch.arange(SMALL.n_labellings)
    classes, labels = SMALL.labelling(every)
    pairs = {(tuple(c), tuple(y)) for c, y in zip(classes.tolist(), labels.tolist(), strict=True)}
    assert len(pairs) == SMALL.n_labellings == 6 * 6
    assert all(c[0] < c[1] and y[0] != y[1] and max(c) < 4 and max(y) < 3 for c, y in pairs)
    for which in (0, 1):
        batch = SMALL.batch(classes, labels, torch.full_like(every, which))
        assert torch.equal(SMALL.labelling_number(batch), every)
        turned = SMALL.batch(classes.flip(1), labels.flip(1), torch.full_like(every, which))
        assert torch.equal(SMALL.labelling_number(turned), every)


def test_every_labelling_is_in_one_split():
    task = FewShot().for_seed(3)
    assert int(task.trained().sum()) == task.n_train == round(0.8 * math.comb(50, 2) * 20)
    for split, trains in (("train", True), ("test", False)):
        batch = task.sample(300, split=split, generator=seeded())
        assert (task.trained()[task.labelling_number(batch)] == trains).all()
    assert not torch.equal(task.trained(), FewShot().for_seed(4).trained())
    with pytest.raises(InputError, match="split_seed is not set"):
        FewShot().trained()


def test_a_sequence_by_hand():
    batch = SMALL.batch(torch.tensor([[2, 0]]), torch.tensor([[1, 2]]), torch.tensor([1]))
    assert batch.symbols == [["x3", "y2", "x1", "y3", "x1"]]
    assert batch.targets[0, QUERY] == 2
    assert batch.scored.tolist() == [[False] * 4 + [True]]
    assert {name: int(value[0]) for name, value in batch.latents.items()} == {
        "class_1": 2, "label_1": 1, "class_2": 0, "label_2": 2, "which": 1, "exemplar_pos": 2, "label_pos": 3,
        "other_label": 1,
    }  # fmt: skip


def test_both_orders_and_both_queries_are_drawn_alike():
    batch = FewShot().for_seed(0).sample(4000, split="train", generator=seeded())
    known = batch.latents
    assert float(known["which"].double().mean()) == pytest.approx(0.5, abs=0.03)
    assert float((known["class_1"] < known["class_2"]).double().mean()) == pytest.approx(0.5, abs=0.03)
    assert (known["class_1"] != known["class_2"]).all()
    assert (known["label_1"] != known["label_2"]).all()


CHANGES = {
    "swap_labels": {"label_1", "label_2"},
    "swap_exemplars": {"class_1", "class_2", "which"},
    "other_query": {"which"},
    "swap_pairs": {"label_1", "label_2", "class_1", "class_2", "which"},
}


@pytest.mark.parametrize("kind", FewShot.corruptions)
def test_pairs_change_what_they_are_named_for(kind):
    task = FewShot(n_classes=8).for_seed(1)
    batch = task.sample(200, split="train", generator=seeded())
    other = task.corrupt(batch, kind=kind, generator=seeded(1))
    stays = kind in ("swap_pairs", "other_class")
    report = task.pair_report(batch, other)
    assert report["answer_changed"] == (not stays)
    assert 0 < report["in_training"] <= 1
    one, two = batch.latents, other.latents
    if kind == "other_class":
        where = one["exemplar_pos"][:, None]
        assert (batch.inputs.gather(1, where) != other.inputs.gather(1, where)).all()
        assert torch.equal(one["which"], two["which"])
        assert (two["class_1"] != two["class_2"]).all()
        kept = [(2, 0), (1, 1), (3, 3)]
        rows = torch.arange(len(batch))
        assert torch.equal(batch.inputs[rows, 2 - one["exemplar_pos"]], other.inputs[rows, 2 - one["exemplar_pos"]])
        assert all(torch.equal(batch.inputs[:, a], other.inputs[:, b]) for a, b in kept[1:])
        return
    follow = {"exemplar_pos", "label_pos"} if "which" in CHANGES[kind] else set()
    answers = set() if stays else {"other_label"}
    differ = {name for name in one if (one[name] != two[name]).all()}
    assert differ == CHANGES[kind] | follow | answers


def test_references():
    task = FewShot().for_seed(0)
    batch = task.sample(50, split="test", generator=seeded())
    losses = {}
    for name in task.references:
        given = task.reference(batch, name)
        assert given[:, :QUERY].isnan().all()
        assert torch.allclose(given[:, QUERY].sum(-1), torch.ones(50, dtype=torch.double))
        losses[name] = -float(given[:, QUERY].gather(1, batch.targets[:, QUERY:]).log().mean())
    assert losses == pytest.approx({"uniform": math.log(5), "shown": math.log(2), "answer": 0})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"n_classes": 2}, "task.n_classes"),
        ({"n_labels": 1}, "task.n_labels"),
        ({"train_share": 1.0}, "task.n_train"),
    ],
)
def test_other_fields_are_refused(fields, words):
    with pytest.raises(InputError, match=words):
        FewShot(**fields)


def test_there_is_no_other_split_kind_or_reference():
    batch = SMALL.sample(3, split="train", generator=seeded())
    with pytest.raises(InputError, match="split must be one of"):
        SMALL.sample(3, split="validation", generator=seeded())
    with pytest.raises(InputError, match="kind must be one of"):
        SMALL.corrupt(batch, kind="other", generator=seeded())
    with pytest.raises(InputError, match="reference must be one of"):
        SMALL.reference(batch, "bayes")
