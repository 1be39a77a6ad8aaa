"""Palindromes: answers, latents, references and minimal pairs, checked value by value."""

import pytest
import torch

from mnemoscope import InputError
from mnemoscope.systems.puzzles.tasks.palindrome import Palindrome
from tests.support import seeded

TASK = Palindrome()
BATCH = TASK.sample(400, split="train", generator=seeded())


def test_a_sequence_is_a_palindrome_if_it_reads_the_same_backwards():
    for tokens, target in zip(BATCH.inputs.tolist(), BATCH.targets[:, -1].tolist(), strict=True):
        assert (tokens[0], tokens[-1]) == (31, 32)
        values = tokens[1:-1]
        assert (values == values[::-1]) == bool(target)
    assert BATCH.classes == ("broken", "palindrome")
    assert BATCH.scored.sum(1).unique().tolist() == [1]


@pytest.mark.parametrize(("redrawn", "mean", "one"), [("coin", 5, 10 / 1024), ("uniform", 5.5, 0.1)])
def test_half_are_redrawn_and_numbers_of_broken_pairs_are_as_stated(redrawn, mean, one):
    task = Palindrome(redrawn=redrawn, n_values=10_000)
    batch = task.sample(8000, split="test", generator=seeded())
    n_broken = batch.latents["n_broken"]
    assert (n_broken == 0).double().mean().item() == pytest.approx(0.5, abs=0.02)
    some = n_broken[n_broken > 0].double()
    assert some.mean().item() == pytest.approx(mean, abs=0.1)
    assert (some == 1).double().mean().item() == pytest.approx(one, abs=0.015)


def test_latents_name_the_broken_pair():
    batch = TASK.broken_only(30, 3, generator=seeded())
    assert batch.latents["broken_pair"].unique().tolist() == [3]
    assert TASK.second_place(3) == 17
    changed = batch.inputs[:, 4] != batch.inputs[:, TASK.second_place(3)]
    assert changed.all()


def test_references_know_what_they_are_named_for():
    right = BATCH.targets[:, -1]
    answers = TASK.reference(BATCH, "answer")[:, -1].argmax(-1)
    assert torch.equal(answers, right)
    same_values = TASK.reference(BATCH, "same_values")[:, -1].argmax(-1)
    assert (same_values != right).sum() == 1  # in one sequence of 400 the two redrawn values are exchanged
    moved = TASK.batch(torch.tensor([[0, 1] + [2] * 8]), torch.tensor([[1, 0] + [2] * 8]))
    assert TASK.reference(moved, "same_values")[0, -1].tolist() == [0, 1]
    inner = TASK.broken_only(5, 9, generator=seeded())
    assert TASK.reference(inner, "outer_half")[:, -1].argmax(-1).tolist() == [1] * 5


def test_minimal_pairs_change_the_answer_or_keep_the_broken_pairs():
    changed = TASK.corrupt(BATCH, kind="change_answer", generator=seeded())
    assert (changed.targets[:, -1] != BATCH.targets[:, -1]).all()
    assert set(changed.latents["n_broken"].tolist()) == {0, 1}
    renamed = TASK.corrupt(BATCH, kind="rename_values", generator=seeded())
    assert torch.equal(renamed.latents["mirrored"], BATCH.latents["mirrored"])
    moved = TASK.corrupt(BATCH, kind="move_faults", generator=seeded())
    assert torch.equal(moved.latents["n_broken"], BATCH.latents["n_broken"])
    assert not torch.equal(moved.latents["mirrored"], BATCH.latents["mirrored"])


def test_sequences_are_read_from_text():
    batch = TASK.parse(" ".join(map(str, [*range(10), *range(9, -1, -1)])))
    assert batch.targets[0, -1].item() == 1
    with pytest.raises(InputError, match="the number of values must be"):
        TASK.parse("1 2")
    with pytest.raises(InputError, match="a value must be one of"):
        TASK.parse("31 2")
