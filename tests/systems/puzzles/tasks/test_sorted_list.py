"""Sorted lists: answers, latents, minimal pairs and exact predictors, against plain Python."""

import math

import pytest
import torch

from mnemoscope import InputError
from mnemoscope.systems.puzzles.tasks.sorted_list import SortedList
from tests.support import seeded

TASK = SortedList()


def sample(n=60, task=TASK):
    return task.sample(n, split="train", generator=seeded())


def test_a_list_is_followed_by_its_values_in_order():
    batch = sample()
    for row in batch.inputs.tolist():
        assert row[11:] == sorted(row[:10])
        assert len({*row[:10]}) == 10
        assert row[10] == 51
    assert batch.scored.any(0).nonzero()[:, 0].tolist() == [*range(10, 20)]
    assert torch.equal(batch.targets[batch.scored].view(-1, 10), batch.inputs[:, 11:])
    assert batch.symbols[0][10] == "SEP"
    assert batch.positions[9:12] == ("v10", "SEP", "s1")


def test_latents_say_which_value_is_next_and_where_it_stands():
    batch = sample()
    latents = {name: values.tolist() for name, values in batch.latents.items()}
    for i, row in enumerate(batch.inputs.tolist()):
        for pos in range(10, 20):
            last = -1 if pos == 10 else row[pos]
            due = min(value for value in row[:10] if value > last)
            assert latents["next_value"][i][pos] == due
            assert row[latents["next_at"][i][pos]] == due
            assert (latents["last_value"][i][pos], latents["gap"][i][pos]) == (last, due - last)
        assert {values[i][pos] for values in latents.values() for pos in (0, 9, 20)} == {-1}


@pytest.mark.parametrize(("kind", "changed"), [("replace_next", 1), ("replace_later", 0), ("reorder", 0)])
def test_pairs_change_the_answer_of_the_asker_or_keep_it(kind, changed):
    batch = sample(400)
    other = TASK.corrupt(batch, kind=kind, generator=seeded(1))
    asker = other.known["asker"]
    assert TASK.pair_report(batch, other) == {"answer_changed": changed}
    for row, again, pos in zip(batch.inputs.tolist(), other.inputs.tolist(), asker.tolist(), strict=True):
        assert row[10 : pos + 1] == again[10 : pos + 1]
        assert again[11:] == sorted(again[:10])
        assert len({*row[:10]} - {*again[:10]}) == (kind != "reorder")
        assert row[:10] != again[:10]
    assert set(asker.tolist()) == set(range(10, 19 if kind == "replace_later" else 20))


def test_a_list_of_the_largest_values_cannot_be_changed_later():
    top = TASK.batch(torch.arange(41, 51)[None])
    assert TASK.pair_report(top, TASK.corrupt(top, kind="replace_next", generator=seeded())) == {"answer_changed": 1}
    with pytest.raises(InputError, match="replace_later needs lists"):
        TASK.corrupt(top, kind="replace_later", generator=seeded())


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("uniform", math.log(51)),
        ("shown", math.log(10)),
        ("larger", sum(math.log(n) for n in range(1, 11)) / 10),
        ("answer", 0),
    ],
)
def test_references_know_what_they_are_named_for(name, loss):
    batch = sample()
    found = TASK.reference(batch, name)
    of_answers = found.gather(-1, batch.targets[..., None])[..., 0]
    assert -of_answers[batch.scored].log().mean().item() == pytest.approx(loss)
    assert found[batch.scored].sum(-1).numpy() == pytest.approx(1)
    assert torch.equal(found.isnan().any(-1), ~batch.scored)


def test_a_list_is_read_as_typed():
    batch = TASK.parse("9 3 50, 0 7 11 12 13 14 15")
    assert batch.inputs[0, 11:].tolist() == [0, 3, 7, 9, 11, 12, 13, 14, 15, 50]
    for text, words in (("1 2", "the number of values"), ("1 1 2 3 4 5 6 7 8 9", "must differ"), ("x", "a value")):
        with pytest.raises(InputError, match=words):
            TASK.parse(text)


def test_what_cannot_be_asked_is_refused():
    with pytest.raises(InputError, match=r"task\.length"):
        SortedList(length=2)
    with pytest.raises(InputError, match="split must be one of"):
        TASK.sample(3, split="validation", generator=seeded())
    with pytest.raises(InputError, match="kind must be one of"):
        TASK.corrupt(sample(), kind="exchange", generator=seeded())
