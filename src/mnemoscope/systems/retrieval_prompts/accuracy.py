"""Accuracy of a language model on retrieval questions, over formulations and difficulties, against chance.

Accuracy is the share of questions whose correct answer is given, by the most probable acceptable answer or by sampling
until an acceptable one comes out. Chance is one in so many acceptable answers. With sampling, accuracy is among the
questions that got an acceptable answer at all; their number stands beside it. Intervals are exact (Clopper and
Pearson), over questions: they say what other questions of the same kind would change, not other models or wordings.

*Does not show* how a model gets there. An answer above chance may come from knowing which answers stand near the name
in the question, and one at chance from a form of answer that the model does not take up.

Source: Mușat, section 4 and appendix A; Clopper and Pearson (1934).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from scipy.stats import binomtest

from mnemoscope import InputError
from mnemoscope.systems.retrieval_prompts.kept import Kept
from mnemoscope.systems.retrieval_prompts.questions import FORMULATIONS, N_CHAINS, Question, questions
from mnemoscope.systems.retrieval_prompts.reading import ask, takes_chat
from mnemoscope.systems.retrieval_prompts.scoring import Answered, Sampling, StandIn, answers

CONFIDENCE = 0.95
MOST_PROBABLE, SAMPLED = "most probable", "sampled"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Questions of one formulation and difficulty."""

    formulation: str
    difficulty: int | None = None
    n_chains: int = N_CHAINS

    @property
    def label(self) -> str:
        """Its name in tables and files."""
        steps = "" if self.difficulty is None else f" D={self.difficulty}"
        return f"{self.formulation}{steps}" + f" N={self.n_chains}" * (self.n_chains != N_CHAINS)

    def questions(self, n: int, seed: int) -> tuple[Question, ...]:
        """The first `n` of a seed."""
        return questions(self.formulation, n, difficulty=self.difficulty, n_chains=self.n_chains, seed=seed)


def cells(
    formulations: Sequence[str] = tuple(FORMULATIONS),
    difficulties: Sequence[int] = (1, 2, 3, 4, 5),
    n_chains: int = N_CHAINS,
) -> tuple[Cell, ...]:
    """The kinds of questions: every difficulty of the formulations that have several, the others once."""
    if not formulations:
        raise InputError(f"formulations must name some of: {', '.join(FORMULATIONS)}; got none")
    found = []
    for name in dict.fromkeys(formulations):
        if name in FORMULATIONS and FORMULATIONS[name].grows:
            steps = dict.fromkeys(difficulties)
            found += [Cell(formulation=name, difficulty=each, n_chains=n_chains) for each in steps]
        else:
            found.append(Cell(formulation=name))
    for each in found:
        each.questions(1, 0)
    return tuple(found)


def retrieval_answers(
    model: Any,
    asked: Sequence[Cell],
    *,
    n: int = 500,
    seed: int = 0,
    chat: bool | None = None,
    sampling: Sampling | None = None,
    max_bytes: int | None = None,
    kept: Kept | None = None,
    report: Callable[[Cell, int], None] | None = None,
) -> xr.Dataset:
    """Ask a model questions of some kinds, `n` of each; the source asks 500.

    The model is a `HookedTransformer` with a tokenizer, or a stand-in. By default questions go through the chat
    template if the tokenizer has one. Without `sampling` only the most probable acceptable answer is looked for.
    Answers are kept and found again in `kept`; `report` gets a kind, and how many of its questions were answered now,
    or found.

    Returns:
        `correct` over (scoring, cell, question), 1 or 0, NaN where sampling came to no acceptable answer; `log_prob`
        over (cell, question, answer), in nats, NaN where there are fewer acceptable answers; `due`, `chosen`, `drawn`
        (empty: none) and `tries` over (cell, question); `chance` over cell.
    """
    rows = []
    for cell in asked:
        wanted = cell.questions(n, seed)
        found = {each.question: each for each in (kept.find(cell.label, wanted, sampling) if kept else ())}
        left = [question for question in wanted if question not in found]
        if report and found:
            report(cell, len(found))
        for batch in _asked(model, left, chat, sampling, max_bytes):
            found |= {each.question: each for each in batch}
            if kept:
                kept.add(cell.label, batch, sampling)
            if report:
                report(cell, len(batch))
        rows.append([found[question] for question in wanted])
    through = chat if chat is not None else takes_chat(getattr(model, "tokenizer", None))
    return _dataset(asked, rows, sampling).assign_attrs(
        metric="accuracy", unit="share of questions", seed=seed, prompts="chat template" if through else "text and cue",
        sampling="none" if sampling is None else f"{sampling.tries} tries at temperature {sampling.temperature:g}, "
        f"seed {sampling.seed}",
    )  # fmt: skip


def _asked(
    model: Any, left: Sequence[Question], chat: bool | None, sampling: Sampling | None, max_bytes: int | None
) -> Iterator[list[Answered]]:
    if not left:
        return iter(())
    if isinstance(model, StandIn):
        return model.answers(left, sampling)
    return answers(model, ask(model.tokenizer, left, chat=chat), sampling=sampling, max_bytes=max_bytes)


def _dataset(asked: Sequence[Cell], rows: list[list[Answered]], sampling: Sampling | None) -> xr.Dataset:
    by_cell = ("cell", "question")
    most = max(len(each.log_probs) for row in rows for each in row)
    log_prob = np.full((len(rows), len(rows[0]), most), np.nan)
    for i, row in enumerate(rows):
        for j, each in enumerate(row):
            log_prob[i, j, : len(each.log_probs)] = each.log_probs
    correct = [[[float(each.chosen == each.question.correct) for each in row] for row in rows]]
    scorings = [MOST_PROBABLE]
    if sampling is not None:
        scorings.append(SAMPLED)
        right = [[np.nan if e.sampled is None else float(e.sampled == e.question.correct) for e in row] for row in rows]
        correct.append(right)
    return xr.Dataset(
        {
            "correct": (("scoring", *by_cell), np.array(correct)),
            "log_prob": ((*by_cell, "answer"), log_prob),
            "due": (by_cell, [[each.question.correct for each in row] for row in rows]),
            "chosen": (by_cell, [[each.chosen for each in row] for row in rows]),
            "drawn": (by_cell, [[each.sampled or "" for each in row] for row in rows]),
            "tries": (by_cell, [[each.tries for each in row] for row in rows]),
            "chance": ("cell", [1 / len(row[0].log_probs) for row in rows]),
        },
        coords={
            "scoring": scorings,
            "cell": [cell.label for cell in asked],
            "formulation": ("cell", [cell.formulation for cell in asked]),
            "difficulty": ("cell", [np.nan if cell.difficulty is None else float(cell.difficulty) for cell in asked]),
        },
    )


def accuracies(found: xr.Dataset) -> xr.Dataset:
    """Accuracy with its exact interval, from `retrieval_answers`; other dimensions, such as `model`, may come before.

    Returns:
        `accuracy`, its ends `low` and `high`, and `answered`, the share of questions with an acceptable answer, over
        all dimensions of `correct` but question; `chance`, and `mass`, the mean probability of all acceptable answers
        together, over those of it. NaN and the whole range where no question was answered.
    """
    right, n = found.correct.sum("question"), found.correct.notnull().sum("question")
    low, high = xr.apply_ufunc(_interval, right, n.astype(float), vectorize=True, output_core_dims=[[], []])
    return xr.Dataset(
        {
            "accuracy": right / n.where(n > 0),
            "low": low,
            "high": high,
            "answered": n / found.sizes["question"],
            "chance": found.chance,
            "mass": np.exp(found.log_prob).sum("answer").mean("question"),
        },
        attrs={**found.attrs, "confidence": CONFIDENCE, "n_questions": found.sizes["question"]},
    )


def _interval(right: float, n: float) -> tuple[float, float]:
    if n == 0:
        return 0.0, 1.0
    ends = binomtest(round(right), round(n)).proportion_ci(CONFIDENCE, method="exact")
    return float(ends.low), float(ends.high)
