"""Sums of two numbers: digits, carries, minimal pairs and exact predictors, against Python's integers."""

import pytest
import torch

from mnemoscope import InputError
from mnemoscope.models import load_original
from mnemoscope.systems.puzzles.tasks.digit_sum import DigitSum
from tests.originals import original_file
from tests.support import seeded

TASK = DigitSum()


def sample(n=300, task=TASK):
    return task.sample(n, split="train", generator=seeded())


@pytest.mark.parametrize("n_digits", [2, 4, 6])
def test_sequences_are_sums(n_digits):
    task = DigitSum(n_digits=n_digits)
    batch = sample(task=task)
    for row in batch.symbols:
        text = "".join(row)
        terms, total = text.split("=")
        assert len(total) == n_digits
        assert sum(map(int, terms.split("+"))) == int(total)
    due = batch.scored[0].nonzero()[:, 0].tolist()
    assert [*range(2 * n_digits + 1, 3 * n_digits + 1)] == due
    assert torch.equal(batch.targets[:, due], batch.inputs[:, [pos + 1 for pos in due]])
    assert batch.positions[n_digits] == "+"
    assert batch.inputs[:, 0].max() < 5


def test_latents_are_those_of_long_addition():
    batch = sample()
    for i, (first, second) in enumerate(TASK.terms(batch.inputs).tolist()):
        carry = 0
        for place in (3, 2, 1, 0):
            pos = TASK.due[place]
            there = {name: int(batch.latents[name][i, pos]) for name in ("a", "b", "units", "carry")}
            a, b = first[place], second[place]
            assert there == {"a": a, "b": b, "units": (a + b) % 10, "carry": carry}
            assert batch.latents[f"carry_{place}"][i] == carry
            assert batch.latents[f"digit_{place}"][i] == (a + b + carry) % 10 == batch.targets[i, pos]
            assert bool(batch.latents["is_chain"][i, pos]) == (place < 3 and first[place + 1] + second[place + 1] == 9)
            carry = int(a + b + carry >= 10)
    assert (batch.latents["carry"][:, 0] == -1).all()


def test_skills_divide_the_digits():
    batch = sample()
    assert torch.equal(torch.stack(list(TASK.skills(batch).values())).sum(0), batch.scored.long())


@pytest.mark.parametrize(("kind", "changed"), [("flip_carry", 1), ("change_digit", 1), ("exchange_numbers", 0)])
def test_pairs_change_the_answer_of_the_asker_or_keep_it(kind, changed):
    batch = sample(2000)
    other = TASK.corrupt(batch, kind=kind, generator=seeded(1))
    assert TASK.pair_report(batch, other) == {"answer_changed": changed}
    rows, asker = torch.arange(2000), other.known["asker"]
    carries = [side.latents["carry"][rows, asker] for side in (batch, other)]
    units = [side.latents["units"][rows, asker] for side in (batch, other)]
    assert (carries[0] != carries[1]).all() == (kind == "flip_carry")
    assert (units[0] != units[1]).all() == (kind == "change_digit")
    assert (TASK.terms(other.inputs)[..., 0] < 5).all()
    assert {int(pos) for pos in asker.unique()} == set(TASK.due[: 3 if kind == "flip_carry" else 4])
    if kind == "flip_carry":
        assert (units[0] == units[1]).all()
        below = TASK.terms(other.inputs).sum(1)[rows, asker - TASK.due[0] + 1]
        assert set(below.tolist()) == {*range(19)} - {9}


def test_only_the_exact_predictor_is_always_right():
    batch = sample(3000)
    there = batch.scored
    right = {
        name: TASK.reference(batch, name).gather(-1, batch.targets[..., None])[there].mean() for name in TASK.references
    }
    assert right["answer"] == 1
    assert right["without_carry"] < right["without_chain"] == pytest.approx(0.976, abs=0.01)
    assert TASK.reference(batch, "answer")[~there].isnan().all()


def test_one_digit_is_refused():
    with pytest.raises(InputError, match=r"task\.n_digits"):
        DigitSum(n_digits=1)


def test_the_original_reads_our_tokens():
    model = load_original(original_file("sum"), "digit-sum").model
    batch = sample(1000)
    with torch.no_grad():
        log_probs = model(batch.inputs).log_softmax(-1)
    assert float((log_probs.argmax(-1) == batch.targets)[batch.scored].double().mean()) > 0.999
    assert float(TASK.loss(log_probs, batch)) == pytest.approx(0.007, abs=0.003)
