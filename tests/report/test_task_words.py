"""A report says what its task is: a reader who meets it first would not know what the numbers are about."""

import re
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from mnemoscope.core.batch import Batch
from mnemoscope.core.presets import PRESETS
from mnemoscope.core.task import BaseTask
from mnemoscope.report.task_report import find_report, report
from mnemoscope.report.task_words import N_BEFORE, TaskWords, task_words
from mnemoscope.systems.k_hop.tasks import KHop
from mnemoscope.systems.retrieval.tasks import Retrieval
from tests.support import small_spec


@dataclass(frozen=True, kw_only=True)
class LastButOne(BaseTask):
    """Say the token
    before the last.

    Further paragraphs are for its author.
    """

    name: ClassVar[str] = "last-but-one"
    symbols: ClassVar[str] = "ab<d"
    n_ctx: int = 3
    scored: bool = True

    @property
    def d_vocab(self) -> int:
        return 4

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        inputs = torch.arange(self.n_ctx).expand(n, -1) % 4
        scored = torch.zeros_like(inputs, dtype=torch.bool)
        scored[:, -1] = self.scored
        return Batch(inputs=inputs, targets=inputs.roll(1, 1), scored=scored)


@dataclass(frozen=True, kw_only=True)
class Undescribed(LastButOne):
    name: ClassVar[str] = "undescribed"


def test_a_task_without_an_entry_is_told_by_its_docstring_and_an_example_in_its_symbols():
    assert task_words(LastButOne()) == TaskWords(about="Say the token before the last.", sequence="a b <", answer="b")
    assert task_words(Undescribed()).about == ""
    long = task_words(LastButOne(n_ctx=N_BEFORE + 1)).sequence.split()
    assert (len(long), long[0]) == (N_BEFORE + 1, "…")
    unscored = task_words(LastButOne(scored=False))
    assert unscored.sequence == unscored.answer == ""


@pytest.mark.parametrize("name", ["v3", "facts", "birth-2-layers", "noisy-recall", "k-hop-2", "retrieval-3"])
def test_every_system_says_what_its_task_is(name):
    words = task_words(PRESETS.get(name).task.for_seed(0))
    assert words.about.endswith(".")
    assert words.sequence
    assert words.answer


def test_the_answer_of_an_example_is_right():
    words = task_words(small_spec("v3").task.for_seed(0))
    tokens = words.sequence.split()
    xs, ys = tokens[0::2], tokens[1::2]
    assert words.answer == (ys[xs.index(xs[-1])] if xs[-1] in xs[:-1] else ({*"12345"} - {*ys}).pop())


def test_vectors_are_told_by_their_symbols():
    words = task_words(Retrieval())
    *_, query = words.sequence.split()
    chain = query.removeprefix("A").removesuffix("?")
    assert words.answer == f"B{chain} C{chain} D{chain}"
    assert task_words(Retrieval(whole_chain=False)).answer == words.answer.split()[-1]
    words = task_words(KHop(n_symbols=4, n_functions=2, hops=(1, 2), hidden_seed=0))
    assert re.fullmatch(r"s1 = [0-3]( [0-3]){3}, s2 = [0-3]( [0-3]){3}; s2\(3\) after 2 hops", words.sequence)
    assert words.answer in "0123"


@pytest.mark.parametrize("n_parts", [1, 2])
def test_the_page_opens_with_it(n_parts):
    """Under the title, or under that of the part where there are several."""
    task = LastButOne()
    parts = [(find_report(each), {}) for each in (task, Undescribed())[:n_parts]]
    html = report(parts, tasks=[task, LastButOne(n_ctx=2)])
    start = html.split("What was learned</h2>")[0]
    assert "Say the token before the last." in start
    assert "<code>a b &lt;</code> → <code>b</code>" in start
    assert html.count('<p class="task">') == 1
