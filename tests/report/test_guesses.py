"""Predictions on one sequence as a table and a figure, and what tokens are called."""

from dataclasses import replace

import numpy as np
import pytest

from mnemoscope.report.guesses import guess_figure, guess_table, show_line_breaks, token_symbols
from mnemoscope.report.plain_report import predict
from mnemoscope.systems.in_context_bigrams.tasks import InContextBigrams
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import Predictor

COUNTS = ((10, 60, 4), (60, 10, 3), (60, 32, 1), (32, 60, 2))
TASK = InContextBigrams(length=8, n_triggers=1, counts=COUNTS)


def test_symbols_can_be_seen():
    assert TASK.symbols == "\n <"
    assert token_symbols(TASK) == ["⏎", "␣", "<"]
    assert token_symbols(PermutationLookup()) == ["0", "1", "2", "3", "4", "5"]
    assert show_line_breaks("a\nb") == "a⏎b"


@pytest.fixture
def result():
    return predict(Predictor(TASK, "global_bigram"), TASK, TASK.parse("\n<\n"), reference="global_bigram")


def test_a_row_tells_what_follows_and_the_likeliest_tokens(result):
    table = guess_table(result)
    assert list(table.header) == [
        *("position", "token", "next", "model: likeliest", "global bigram: likeliest"),
        *("model: p", "global bigram: p", "KL"),
    ]
    rows = [list(row) for row in table.rows]
    assert [row[:3] for row in rows] == [["0", "⏎", "<"], ["1", "<", "⏎"], ["2", "⏎", ""]]
    assert rows[1][4].startswith("⏎ 0.75  ␣ 0.25")
    assert rows[1][5:] == ["0.750", "0.750", "0.0000"]
    assert rows[2][5:7] == ["", ""]


def test_nothing_follows_where_nothing_is_scored():
    """A dummy target would be shown as what the model should have said."""
    batch = TASK.parse("\n<\n")
    scored = batch.scored.clone()
    scored[0, 0] = False
    dummies = replace(batch, scored=scored)
    result = predict(Predictor(TASK, "global_bigram"), TASK, dummies, reference="global_bigram")
    rows = [list(row) for row in guess_table(result).rows]
    assert [row[2] for row in rows] == ["", "⏎", ""]
    assert rows[0][5:7] == ["", ""]
    assert rows[1][5:7] == ["0.750", "0.750"]
    assert np.isnan(guess_figure(result).data[0].y[0])
    assert np.isnan(guess_figure(result).data[1].y[0])


def test_the_figure_escapes_symbols(result):
    bars, dots = guess_figure(result).data
    assert bars.y[:2].tolist() == pytest.approx([1, 0.75])
    assert dots.y[:2].tolist() == pytest.approx([1, 0.75])
    assert "after &lt;: ⏎ · ⏎ 0.75" in bars.customdata[1]
    assert list(guess_figure(result).layout.xaxis.ticktext) == ["⏎", "&lt;", "⏎"]
