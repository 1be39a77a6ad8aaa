import pytest
import torch

from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.presets import PRESETS
from mnemoscope.core.task import BaseTask
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import global_generators_untouched, seeded

TASK = PermutationLookup(split_seed=0, repeat_ratio=0.5)


def batch(n=2, n_pos=4, *, scored=(1, 3)):
    tokens = torch.randint(5, (2, n, n_pos), generator=seeded())
    mask = torch.zeros(n, n_pos, dtype=torch.bool)
    mask[:, list(scored)] = True
    return Batch(inputs=tokens[0], targets=tokens[1], scored=mask)


def of_task(kind="exchange_answer", seed=0):
    return PromptPairs.from_task(TASK, TASK.sample(12, split="test", generator=seeded()), kind=kind, seed=seed)


def test_answer_and_foil_are_the_two_targets():
    pairs = of_task()
    assert torch.equal(pairs.answer, pairs.clean.targets)
    assert torch.equal(pairs.foil, pairs.corrupted.targets)
    assert (pairs.answer[:, -1] != pairs.foil[:, -1]).all()
    assert pairs.name == "exchange_answer"


def test_from_task_depends_on_its_seed_only():
    with global_generators_untouched():
        first, again, other = (of_task("permute_pairs", seed).corrupted.inputs for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_read_last_keeps_the_last_scored_position_of_each_prompt():
    clean = batch()
    scored = torch.tensor([[True, True, False, True], [True, True, False, False]])
    pairs = PromptPairs(clean=clean, corrupted=clean, name="same").read_at(scored).read_last()
    assert pairs.scored.tolist() == [[False, False, False, True], [False, True, False, False]]
    assert torch.equal(pairs.corrupted.scored, pairs.scored)


def test_select_takes_both_sides():
    pairs = of_task()
    part = pairs.select(torch.tensor([3, 1]))
    assert len(part) == 2
    assert torch.equal(part.clean.inputs, pairs.clean.inputs[[3, 1]])
    assert torch.equal(part.corrupted.inputs, pairs.corrupted.inputs[[3, 1]])


@pytest.mark.parametrize(
    ("clean", "corrupted", "words"),
    [
        (batch(n=2), batch(n=3), "equal in number and length.*2 prompts of 4 tokens, corrupted 3 of 4"),
        (batch(n_pos=4), batch(n_pos=5), "2 prompts of 4 tokens, corrupted 2 of 5"),
        (batch(), batch(scored=(1, 2)), "scored at the same positions"),
        (batch(scored=()), batch(scored=()), "at one position at least; 2 of 2 are at none"),
        (batch().select(slice(0)), batch().select(slice(0)), "at least one prompt"),
    ],
)
def test_unequal_pairs_are_refused(clean, corrupted, words):
    with pytest.raises(InputError, match=words):
        PromptPairs(clean=clean, corrupted=corrupted, name="bad")


@pytest.mark.parametrize("name", ["v3", "facts", "addition-c1", "sorted-list", "digit-sum"])
def test_other_wordings_change_both_sides_alike_and_keep_the_answers(name):
    task = PRESETS.get(name).task.for_seed(0)
    assert isinstance(task, BaseTask)
    sample = task.sample(12, split="train", generator=seeded())
    pairs = PromptPairs.from_task(task, sample, kind=task.corruptions[0]).read_last()
    (wording,) = task.wordings
    other = pairs.reworded(task, wording, seed=1)
    assert other.name == f"{pairs.name}, {wording}"
    assert not torch.equal(other.clean.inputs, pairs.clean.inputs)
    for now, before in ((other.clean, pairs.clean), (other.corrupted, pairs.corrupted)):
        assert torch.equal(now.scored, before.scored)
        assert torch.equal(now.targets[now.scored], before.targets[before.scored])
    same = pairs.clean.inputs == pairs.corrupted.inputs
    assert ((other.clean.inputs == other.corrupted.inputs).sum(1) == same.sum(1)).all()


def test_wordings_that_do_not_exist_or_change_an_answer_are_refused():
    pairs = of_task()
    with pytest.raises(InputError, match="wording must be one of: permute_pairs; got 'move_repeat'"):
        pairs.reworded(TASK, "move_repeat")

    class Turned(PermutationLookup):
        wordings = ("exchange_answer",)

    with pytest.raises(InputError, match="wording exchange_answer of task permutation-lookup changes answers"):
        pairs.reworded(Turned(split_seed=0, repeat_ratio=0.5), "exchange_answer")
    with pytest.raises(InputError, match="the task k-hop has no other wording"):
        pairs.reworded(PRESETS.get("k-hop-4").task, "reorder")
