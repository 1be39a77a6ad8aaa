"""The first unique letter: answers, latents, minimal pairs and exact predictors, against plain Python."""

import pytest
import torch

from mnemoscope import InputError, PromptPairs
from mnemoscope.models import load_original
from mnemoscope.systems.puzzles.tasks.first_unique import FirstUnique
from tests.originals import original_file
from tests.support import seeded

TASK = FirstUnique()


def sample(n=200, task=TASK):
    return task.sample(n, split="train", generator=seeded())


def expected(letters):
    """The first of the letters that stands once, or `?`."""
    return next((letter for letter in letters if letters.count(letter) == 1), "?")


def test_answers_are_the_first_letters_that_stood_once():
    batch = sample()
    for row, targets in zip(batch.symbols, batch.targets.tolist(), strict=True):
        assert row[0] == "?"
        assert [TASK.symbol(target) for target in targets] == [expected(row[1 : pos + 1]) for pos in range(20)]
    assert batch.scored.all()
    assert batch.positions[:3] == ("START", "l1", "l2")


def test_latents_say_which_letters_stood_once_and_where_they_first_stand():
    batch = sample()
    for i, row in enumerate(batch.symbols):
        shown = row[1:]
        for letter in TASK.letters:
            first = shown.index(letter) + 1 if letter in shown else -1
            assert batch.latents[f"first_{letter}"][i] == first
            assert batch.latents[f"once_{letter}"][i].tolist() == [
                row[1 : pos + 1].count(letter) == 1 for pos in range(20)
            ]
        assert batch.latents["is_repeat"][i].tolist() == [pos > 0 and row[pos] in row[1:pos] for pos in range(20)]
        place = batch.latents["answer_place"][i].tolist()
        assert [row[at] if at >= 0 else "?" for at in place] == [TASK.symbol(t) for t in batch.targets[i].tolist()]


def test_skills_divide_the_answers_after_start():
    batch = sample()
    count = torch.stack(list(TASK.skills(batch).values())).sum(0)
    assert (count[:, 0] == 0).all()
    assert (count[:, 1:] == 1).all()


@pytest.mark.parametrize(("kind", "changed"), [("repeat_answer", 1), ("exchange_uniques", 1), ("rename_others", 0)])
def test_pairs_change_the_last_answer_or_keep_it(kind, changed):
    batch = sample(2000)
    if kind == "exchange_uniques":
        batch = batch.select(TASK.once(batch.inputs)[:, -1].sum(-1) > 1)
    other = TASK.corrupt(batch, kind=kind, generator=seeded(1))
    assert TASK.pair_report(batch, other) == {"answer_changed": changed}
    moved = (batch.inputs != other.inputs).sum(1)
    if kind == "repeat_answer":
        assert (moved == 1).all()
    if kind == "exchange_uniques":
        assert (moved == 2).all()
        assert torch.equal(TASK.once(batch.inputs)[:, -1], TASK.once(other.inputs)[:, -1])
    if kind == "rename_others":
        assert (moved > 0).all()
        assert torch.equal(TASK.latents(batch)["is_repeat"], TASK.latents(other)["is_repeat"])


def test_without_two_letters_to_exchange_the_answer_is_repeated():
    batch = TASK.batch(torch.zeros(1, 19, dtype=torch.long))
    other = TASK.corrupt(batch, kind="exchange_uniques", generator=seeded())
    assert TASK.pair_report(batch, other) == {"answer_changed": 1}


def test_exact_predictors_are_distributions_and_only_one_is_always_right():
    batch = sample(500)
    right = {}
    for name in TASK.references:
        predicted = TASK.reference(batch, name)
        assert torch.allclose(predicted.sum(-1), torch.ones(500, 20, dtype=torch.double))
        right[name] = float(predicted.gather(-1, batch.targets[..., None]).mean())
    assert right["answer"] == 1
    assert 0.3 < right["any_unique"] < 0.6
    assert 0.3 < right["first_letter"] < 0.6
    assert (TASK.reference(batch, "any_unique").gather(-1, batch.targets[..., None]) > 0).all()


def test_too_many_letters_in_a_sequence_are_refused():
    with pytest.raises(InputError, match=r"task\.n_shown"):
        FirstUnique(n_letters=5, n_shown=10)


def test_the_original_reads_our_tokens():
    model = load_original(original_file("first-unique"), "first-unique").model
    batch = sample(1000)
    with torch.no_grad():
        log_probs = model(batch.inputs).log_softmax(-1)
    assert float((log_probs.argmax(-1) == batch.targets).double().mean()) > 0.99
    assert float(TASK.loss(log_probs, batch)) == pytest.approx(0.021, abs=0.005)


def test_pairs_of_the_task_are_read_at_the_last_position():
    batch = sample(50)
    pairs = PromptPairs.from_task(TASK, batch, kind="repeat_answer").read_last()
    assert pairs.scored.nonzero()[:, 1].unique().tolist() == [19]
