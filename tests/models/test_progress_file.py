"""Files of training progress, whole and damaged."""

import json
import math
import shutil

import pytest

from mnemoscope.core.errors import InputError
from mnemoscope.models.files import read_progress
from mnemoscope.models.run import open_run
from mnemoscope.training.loop import train
from tests.support import contents, small_spec

FIRST = '{"step": 0, "train_loss": 1.5, "test_loss": NaN, "test_recall": 0}\n'
SECOND = '{"step": 10, "train_loss": 1.25, "test_loss": 2.0, "test_recall": 1.0}\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no whole line"),
        (FIRST + SECOND[:20], "line 2 is cut short or not JSON"),
        (FIRST[:20] + "\n" + SECOND, "line 1 is cut short or not JSON"),
        (FIRST + "\n" + SECOND, "line 2 is cut short or not JSON"),
        (FIRST.encode() + b'{"step": 10, "\xff\xfe": 1}\n', "line 2 is not UTF-8"),
        (FIRST + "[1, 2]\n", "line 2 is no JSON object"),
        ('{"step": 0}\n', "line 1 lacks train_loss, test_loss"),
        (FIRST + SECOND.replace(', "test_recall": 1.0', ""), "line 2 lacks test_recall"),
        (FIRST + SECOND.replace("test_recall", "test_copies"), "line 2 lacks test_recall"),
        (FIRST + SECOND.replace('"step"', '"extra": 1, "step"'), "line 2 holds extra, which line 1 lacks"),
        (FIRST + SECOND.replace("1.25", '"1.25"'), 'train_loss on line 2 must be a number, and is "1.25"'),
        (FIRST + SECOND.replace("1.25", "true"), "train_loss on line 2 must be a number, and is true"),
        (FIRST + SECOND.replace("10", "10.5"), "step on line 2 must be an integer, and is 10.5"),
    ],
)
def test_damage_is_named_with_its_line_and_the_way_out(tmp_path, content, message):
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as error:
        read_progress(file, finished=True)
    out = "restore the file, or delete the run directory and train again"
    assert str(error.value) == f"{file} is damaged: {message}; {out}"


def test_whole_files_are_read(tmp_path):
    file = tmp_path / "metrics.jsonl"
    for end in ("\n", "\r\n", ""):
        file.write_bytes((FIRST.rstrip() + (end or "\n") + SECOND.rstrip() + end).encode())
        first, second = read_progress(file, finished=True)
        assert math.isnan(first["test_loss"])
        assert second == json.loads(SECOND)


def test_the_last_line_of_an_unfinished_run_may_be_cut_short(tmp_path):
    file = tmp_path / "metrics.jsonl"
    for length in range(len(SECOND)):
        file.write_text(FIRST + SECOND[:length])
        assert [line["step"] for line in read_progress(file, finished=False)] == [0]
    file.write_text(FIRST[:20])
    with pytest.raises(InputError, match="holds no whole line"):
        read_progress(file, finished=False)


def test_a_run_with_damaged_metrics_is_not_continued(tiny, tmp_path):
    shutil.copytree(tiny.path, tmp_path / "run")
    (tmp_path / "run" / "done").unlink()
    file = tmp_path / "run" / "metrics.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([lines[0], lines[1][:10], "\n", *lines[2:]]))
    before = contents(tmp_path / "run")
    with pytest.raises(InputError, match="line 2 is cut short or not JSON"):
        train(small_spec(), tmp_path / "run")
    with pytest.raises(InputError, match="line 2 is cut short or not JSON"):
        open_run(tmp_path / "run").metrics()
    assert contents(tmp_path / "run") == before
