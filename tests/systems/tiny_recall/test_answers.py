"""The words on the answers at a slot, against sequences read by hand."""

import pytest

from mnemoscope.systems.tiny_recall.analyses.predictions import exact, marks, predict
from mnemoscope.systems.tiny_recall.figures import prediction
from mnemoscope.systems.tiny_recall.report import prediction_tables
from tests.support import Predictor, small_spec

TASK = small_spec().task


def answered(text):
    return predict(Predictor(TASK), TASK, text)


def test_a_right_answer_by_recall_is_not_marked_as_used():
    result = answered("3 3 4 5 2 1 1 4 3 3")
    assert result.repeats.values.tolist() == [0, 0, 0, 0, 1]
    last = result.sel(slot=5)
    assert [marks(last, value) for value in range(1, 6)] == [
        ["✕ used"], [], ["✓ target", "↩ y of slot 1"], ["✕ used"], ["✕ used"],
    ]  # fmt: skip
    assert exact(last) == "3, by recall"


def test_without_a_repeat_what_is_used_is_ruled_out():
    result = answered("3 3 4 5 2 1 1 4 5")
    assert not result.repeats.any()
    assert [marks(result.sel(slot=2), value) for value in range(1, 6)] == [[], [], ["✕ used"], [], ["✓ target"]]
    assert exact(result.sel(slot=1)) == "any of 1, 2, 3, 4, 5"
    assert exact(result.sel(slot=5)) == "2, by elimination"


@pytest.mark.parametrize(
    ("last", "title"),
    [
        ("4", "x = 4, a repeat of slot 2; used y: 1, 3, 4, 5; exact: 5, by recall"),
        ("5", "x = 5; used y: 1, 3, 4, 5; exact: 2, by elimination"),
    ],
)
def test_table_and_figure_say_what_the_task_knows(last, title):
    result = answered(f"3 3 4 5 2 1 1 4 {last}")
    assert prediction_tables(result)[-1].title == f"slot 5: {title}"
    figure = prediction(result)
    names = list(figure.data[-1].x)
    assert names == (["1 ✕", "2", "3 ✕", "4 ✕", "5 ↩"] if last == "4" else ["1 ✕", "2", "3 ✕", "4 ✕", "5 ✕"])
    shown = figure.layout.annotations[-1].text
    assert shown == ("x5 = x2 = 4" if last == "4" else "x5 = 5")
