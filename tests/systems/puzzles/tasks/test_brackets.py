"""Brackets: answers and kinds, checked bracket by bracket; what the generator draws; pairs and references."""

import itertools
from collections import Counter

import pytest
import torch

from mnemoscope import InputError
from mnemoscope.systems.puzzles.tasks.brackets import KINDS, Brackets
from tests.support import seeded

TASK = Brackets()
BATCH = TASK.sample(3000, split="train", generator=seeded())


def texts(batch):
    return ["".join(symbol for symbol in row if symbol in "()") for row in batch.symbols]


def kind_of(text):
    """Read from the right."""
    heights = list(itertools.accumulate(1 if sign == ")" else -1 for sign in reversed(text)))
    return (heights[-1] != 0) + 2 * (min(heights) < 0)


def test_kinds_and_answers_follow_from_the_elevation():
    kinds = [kind_of(text) for text in texts(BATCH)]
    assert BATCH.latents["kind"].tolist() == kinds
    assert BATCH.targets[:, 0].tolist() == [int(kind == 0) for kind in kinds]
    shares = [kinds.count(kind) / len(kinds) for kind in range(4)]
    assert shares == pytest.approx([0.46, 0.0972, 0.0972, 0.3456], abs=0.03)


def test_lengths_are_even_and_short_ones_frequent():
    lengths = Counter(len(text) for text in texts(BATCH))
    assert set(lengths) == set(range(2, 41, 2))
    assert lengths[2] / lengths[4] == pytest.approx(2, rel=0.25)
    assert (BATCH.inputs[:, 0] == 0).all()
    assert torch.equal((BATCH.inputs != 1).sum(1), BATCH.lengths)


@pytest.mark.parametrize("kind", range(4))
def test_sequences_of_a_kind_and_length_are_all_alike(kind):
    every = [text for text in map("".join, itertools.product("()", repeat=4)) if kind_of(text) == kind]
    drawn = TASK.of_kinds(torch.full((4000,), kind), pairs=torch.full((4000,), 2), generator=seeded())
    counts = Counter(texts(drawn))
    assert set(counts) == set(every)
    assert all(count / 4000 == pytest.approx(1 / len(every), abs=0.03) for count in counts.values())


def test_references_look_for_the_faults_that_they_are_named_for():
    for name, faults in (("answer", (1, 2, 3)), ("total_only", (1, 3)), ("negative_only", (2, 3))):
        given = TASK.reference(BATCH, name)[:, 0, 1]
        assert given.tolist() == [float(kind not in faults) for kind in BATCH.latents["kind"].tolist()]


def test_pairs_have_the_same_lengths():
    changed, same = (TASK.corrupt(BATCH, kind=kind, generator=seeded()) for kind in ("change_answer", "other_of_kind"))
    assert (changed.targets[:, 0] != BATCH.targets[:, 0]).all()
    assert torch.equal(same.latents["kind"], BATCH.latents["kind"])
    assert torch.equal(changed.lengths, BATCH.lengths)
    with pytest.raises(InputError, match="even number of brackets"):
        TASK.corrupt(TASK.parse("("), kind="change_answer", generator=seeded())


def test_text_is_read_and_refused():
    assert [KINDS[kind] for kind in TASK.from_text("()", "))", ")(", "((").latents["kind"].tolist()] == list(KINDS)
    with pytest.raises(InputError, match="a bracket must be one of"):
        TASK.parse("(]")
    with pytest.raises(InputError, match="the number of brackets must be"):
        TASK.parse("()" * 21)
