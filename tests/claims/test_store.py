"""The store of measurements: several processes write to it at once, and it is listed, verified and cleaned."""

import json
import os
import threading
from dataclasses import replace

import pytest

from mnemoscope.claims import measures
from mnemoscope.claims.measures import DrawWork, MeasureCall, do_work
from mnemoscope.claims.store import clean_store, incomplete_files, stored_files
from mnemoscope.cli import main
from mnemoscope.core.errors import InputError

MEETING = threading.Barrier(2)


def doubled(draw: int, **factors) -> dict[str, float]:
    return {"effect": 2.0 * draw, "prompts": [1.0, float("nan")]}


def met(draw: int, **factors) -> dict[str, float]:
    """Returns when the other process measures too."""
    MEETING.wait(timeout=60)
    return {"effect": float(draw)}


def piece(draw: int, measure=doubled, **factors) -> DrawWork:
    return DrawWork(measure, draw, calls=(MeasureCall(measure, tuple(factors.items())),))


@pytest.fixture
def store(tmp_path, as_installed):
    """Two draws, of which one was asked twice."""
    place = tmp_path / "measured"
    for draw, factor in ((0, 1), (0, 2), (1, 1)):
        do_work(piece(draw, factor=factor), store=place)
    return place


def of_another_version(file):
    """Makes one of the results in a file that of another version."""
    content = json.loads(file.read_text())
    key = next(iter(content))
    content[key]["stamp"] = "0123 2.0 3.0 "
    file.write_text(json.dumps(content))
    return key


def test_a_store_says_what_it_holds(store):
    kept = stored_files(store)
    assert [(each.current, each.other, each.problem) for each in kept] == [(2, 0, ""), (1, 0, "")]
    assert all(each.name == piece(draw).name for draw, each in enumerate(kept))
    of_another_version(kept[0].path)
    assert [(each.current, each.other) for each in stored_files(store)] == [(1, 1), (1, 0)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"key": {"stamp": "a", "measu', "no JSON"),
        ('{"key": {"stamp": "a"}}', "something else"),
        ('{"key": {"stamp": "a", "measured": {"effect": "2"}}}', "something else"),
    ],
)
def test_what_is_damaged_is_found_and_removed_and_measured_again(store, capsys, text, problem):
    main(["dev", "store", "verify", str(store)])
    assert "2 files in" in capsys.readouterr().out
    first = stored_files(store)[0].path
    whole = json.loads(first.read_text())
    first.write_text(text)
    with pytest.raises(SystemExit) as ended:
        main(["dev", "store", "verify", str(store)])
    assert ended.value.code == 2
    assert "1 of 2 files in" in capsys.readouterr().err
    assert problem in stored_files(store)[0].problem
    main(["dev", "store", "clean", str(store)])
    assert not first.exists()
    assert "1 file removed or shortened" in capsys.readouterr().out
    for factor in (1, 2):
        do_work(piece(0, factor=factor), store=store)
    assert str(json.loads(first.read_text())) == str(whole)  # as text: not a number is not equal to itself


def test_only_what_nobody_writes_any_more_is_incomplete(store):
    left = store / "draws" / ".a-0.json.0123abcd"
    left.write_text('{"ke')
    assert incomplete_files(store) == []
    os.utime(left, (0, 0))
    assert incomplete_files(store) == [left]
    assert len(stored_files(store)) == 2
    assert clean_store(stored_files(store), store) == [left]
    assert not left.exists()


def test_results_of_other_versions_go_only_when_asked(store):
    first, second = (each.path for each in stored_files(store))
    gone = [of_another_version(file) for file in (first, second)]
    assert clean_store(stored_files(store), store) == []
    assert clean_store(stored_files(store), store, others=True) == [first, second]
    assert gone[0] not in json.loads(first.read_text())
    assert not second.exists(), "nothing was left in it"


def test_the_list_counts_by_directory(store, capsys):
    main(["dev", "store", "list", str(store)])
    rows = [line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines() if "│" in line]
    assert [[cell.strip() for cell in row[:5]] for row in rows] == [
        ["draws", "2", "3", "0", "0"],
        ["all", "2", "3", "0", "0"],
    ]


@pytest.mark.parametrize("text", ["[]", '{"label": "v3-quick"}', '{"key": {"mean": 1}}'])
def test_nothing_is_removed_from_what_may_be_no_store(store, capsys, text):
    broken, other = stored_files(store)[0].path, store / "run.json"
    broken.write_text("{")
    other.write_text(text)
    with pytest.raises(SystemExit) as ended:
        main(["dev", "store", "clean", str(store), "--others"])
    assert ended.value.code == 2
    assert "run.json holds something else; nothing was removed" in capsys.readouterr().err
    assert broken.exists()
    assert other.read_text() == text


def test_what_is_no_store_is_refused(tmp_path):
    with pytest.raises(InputError, match="is no directory; a store is OUT/measured of `claims run`"):
        stored_files(tmp_path / "nowhere")
    with pytest.raises(InputError, match="holds no measurements"):
        stored_files(tmp_path)


def test_two_that_measure_the_same_at_once_leave_a_whole_file_with_what_both_measured(tmp_path):
    pieces = [piece(3, met, factor=factor) for factor in (1, 2)]
    threads = [threading.Thread(target=do_work, args=(each,), kwargs={"store": tmp_path}) for each in pieces]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (kept,) = stored_files(tmp_path)
    assert not kept.problem
    assert kept.current >= 1
    everything = replace(pieces[0], calls=(*pieces[0].calls, *pieces[1].calls))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            measures, "_measure_calls", lambda piece, calls: iter([(call, {"effect": 3.0}) for call in calls])
        )
        assert [found["effect"] for found in do_work(everything, store=tmp_path).values()] == [3.0, 3.0]
    assert not list(tmp_path.rglob(".*"))
