"""Accuracies of models whose knowledge is planted, intervals by hand, answers that are kept and found again."""

import json

import numpy as np
import pytest
from scipy.stats import beta, binomtest

import mnemoscope as ms
from mnemoscope.systems.retrieval_prompts import accuracy
from mnemoscope.systems.retrieval_prompts.accuracy import Cell, accuracies, cells, retrieval_answers
from mnemoscope.systems.retrieval_prompts.kept import Kept
from mnemoscope.systems.retrieval_prompts.scoring import Answered, Sampling, StandIn

ASKED = cells(difficulties=(1, 5))
EASY = (Cell(formulation="equations", difficulty=1), Cell(formulation="functions"))


def test_every_difficulty_of_two_formulations_is_asked_and_the_others_once():
    assert [cell.label for cell in ASKED] == [
        "equations D=1", "equations D=5", "lives-with D=1", "lives-with D=5", "kingdoms", "functions", "relatives",
    ]  # fmt: skip
    assert cells(("equations",), (2, 2), 3)[0].label == "equations D=2 N=3"
    with pytest.raises(ms.InputError, match="formulations must name some"):
        cells(())
    with pytest.raises(ms.InputError, match="Take fewer steps"):
        cells(("lives-with",), (9,))
    with pytest.raises(ms.InputError, match="formulation must be one of"):
        cells(("riddles",))


def test_a_model_that_knows_is_right_and_one_that_guesses_is_at_chance():
    knows = accuracies(retrieval_answers(StandIn(share=1.0), ASKED, n=50, sampling=Sampling()))
    assert (knows.accuracy == 1).all()
    assert np.allclose(knows.low, 0.025 ** (1 / 50))  # the exact bound of 50 of 50
    assert (knows.high == 1).all()
    guesses = accuracies(retrieval_answers(StandIn(share=0.0, knows=()), ASKED, n=400)).isel(scoring=0)
    assert guesses.chance.values.tolist() == [0.25] * 6 + [1 / 16]
    for cell in guesses.cell.values:
        right = round(float(guesses.accuracy.sel(cell=cell)) * 400)
        assert binomtest(right, 400, float(guesses.chance.sel(cell=cell))).pvalue > 1e-3, cell


def test_the_results_say_what_was_asked():
    found = retrieval_answers(StandIn(share=0.5), EASY, n=6, seed=4, sampling=Sampling(tries=3, seed=7))
    assert found.sizes == {"scoring": 2, "cell": 2, "question": 6, "answer": 4}
    assert found.attrs["sampling"] == "3 tries at temperature 1, seed 7"
    assert found.attrs["seed"] == 4
    assert (found.correct.sel(scoring="most probable") == (found.chosen == found.due)).all()
    assert np.allclose(np.exp(found.log_prob).sum("answer"), 1.0)
    assert np.isnan(float(found.difficulty[1]))


class Fixed:
    """Answers as it is told; in sampling a question may stay without one."""

    def __init__(self, right: list[bool | None]):
        self.right = right

    def __call__(self, model, left, chat, sampling, max_bytes):
        given = []
        for question, right in zip(left, self.right, strict=True):
            other = next(answer for answer in question.acceptable if answer != question.correct)
            said = None if right is None else question.correct if right else other
            given.append(Answered(question=question, log_probs=(0.0, -1.0, -1.0, -1.0), sampled=said, tries=2))
        yield given


def test_accuracy_and_interval_of_sampling_are_among_the_questions_that_were_answered(monkeypatch):
    monkeypatch.setattr(accuracy, "_asked", Fixed([True, True, True, False, None, None, None, None]))
    found = accuracies(retrieval_answers(None, EASY[:1], n=8, sampling=Sampling()))
    sampled = found.sel(scoring="sampled").isel(cell=0)
    assert float(sampled.accuracy) == 3 / 4
    assert float(sampled.answered) == 1 / 2
    assert float(sampled.low) == pytest.approx(beta.ppf(0.025, 3, 2))
    assert float(sampled.high) == pytest.approx(beta.ppf(0.975, 4, 1))


def test_without_any_answer_nothing_is_known(monkeypatch):
    monkeypatch.setattr(accuracy, "_asked", Fixed([None] * 3))
    sampled = accuracies(retrieval_answers(None, EASY[:1], n=3, sampling=Sampling())).sel(scoring="sampled")
    assert np.isnan(float(sampled.accuracy[0]))
    assert (float(sampled.low[0]), float(sampled.high[0])) == (0, 1)


def test_kept_answers_are_found_again_and_more_questions_add_to_them(tmp_path, llama):
    asked, sampling = (Cell(formulation="equations", difficulty=1), Cell(formulation="kingdoms")), Sampling(tries=2)
    reports: list[tuple[str, int]] = []

    def ask(n: int, **options):
        kept = Kept(directory=tmp_path, stamp=options.pop("stamp", "one"))
        reports.clear()
        return retrieval_answers(
            options.pop("model", llama), asked, n=n, sampling=options.pop("sampling", sampling), kept=kept,
            report=lambda cell, n: reports.append((cell.label, n)), **options,
        )  # fmt: skip

    first = ask(4)
    assert sum(n for _, n in reports) == 8
    again = ask(4, model=None)  # nothing is asked
    assert again.equals(first)
    more = ask(6)
    assert [label for label, _ in reports] == [cell.label for cell in asked for _ in range(2)]
    assert more.isel(question=slice(4)).drop_vars("log_prob").equals(first.drop_vars("log_prob"))
    assert np.allclose(more.isel(question=slice(4)).log_prob, first.log_prob, atol=1e-4)
    for changed in ({"stamp": "two"}, {"sampling": Sampling(tries=1)}, {"seed": 1}):
        with pytest.raises(AttributeError):  # there is no model to ask
            ask(4, model=None, **changed)


def test_an_interrupted_call_goes_on_where_it_was(tmp_path, llama):
    kept = Kept(directory=tmp_path, stamp="one")

    def stop(cell, n):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        retrieval_answers(llama, EASY, n=5, kept=kept, report=stop, max_bytes=1)
    content = json.loads((tmp_path / "equations-D=1.json").read_text())
    assert len(content["answers"]) == 1
    whole = retrieval_answers(llama, EASY, n=5, kept=Kept(directory=tmp_path, stamp="one"))
    assert np.allclose(whole.log_prob, retrieval_answers(llama, EASY, n=5).log_prob, atol=1e-4)
