"""A guest whose measure is edited: what is kept, what is measured anew, and what a trial says of its registration."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from inspect import unwrap
from pathlib import Path
from typing import Any

import pytest

import mnemoscope
from mnemoscope.analyses.evaluation import evaluate
from mnemoscope.claims import functions, measures, store
from mnemoscope.claims.measures import DrawWork, MeasureCall, do_work
from mnemoscope.claims.registration import register
from mnemoscope.claims.trials import run_trials
from mnemoscope.core import guests
from mnemoscope.core.errors import InputError

N_DRAWS, N_CASES = 16, 2
SOURCE = '''
from pathlib import Path

import mnemoscope as ms


def measure(draw):
    """The number of a draw."""
    with Path(__file__).with_name("measured").open("a") as file:
        file.write(f"{draw}\\n")
    return {"effect": 0.1 + draw}


def plant(case):
    return {"draw": 100 + case}


CLAIM = ms.Claim(
    id="X", statement="s", source="made up", quantifier="most", margin=0.0, replicate="draw", develops=False,
    measure=measure, version=1, explanation=ms.claims.Explanation(
        procedure="Made up.", quantities={"effect": ms.claims.Quantity(words="a number")}, margins="Made up."
    ),
    controls=(
        ms.Control(name="planted", kind="positive", plant=plant, n=2), ms.Control(name="none", kind="negative")
    ),
)
'''


@pytest.fixture
def guest(tmp_path, monkeypatch):
    """A package with a claim about draws: `edited` imports it as a new process does, `tried` says what a trial of it
    gives, with how many draws and how many controls were measured.
    """
    place, before = tmp_path / "moving_guest", dict(guests._invited)
    place.mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))

    class Guest:
        directory = place

        def edited(self, *replaced: tuple[str, str]):
            source = SOURCE
            for old, new in replaced:
                assert old in source
                source = source.replace(old, new)
            (place / "__init__.py").write_text(source)
            sys.modules.pop("moving_guest", None)
            importlib.invalidate_caches()
            functions._digest_modules.cache_clear()
            return guests.invite("moving_guest").CLAIM

        def tried(self, claim):
            (place / "measured").write_text("")
            (ruling,) = run_trials([claim], [], store=tmp_path / "kept")
            numbers = [int(line) for line in (place / "measured").read_text().split()]
            return ruling, sum(number < 100 for number in numbers), sum(number >= 100 for number in numbers)

    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # two edits within one second have one time
    yield Guest()
    sys.modules.pop("moving_guest", None)
    guests._invited.clear()
    guests._invited.update(before)


SAME, OTHER = ("0.1 + draw", "draw + 0.1"), ("0.1 + draw", "0.2 + draw")


def test_a_measure_that_is_not_registered_is_measured_again_after_every_edit(guest):
    ruling, *n = guest.tried(guest.edited())
    assert (ruling.standing.status, ruling.departures, ruling.code, *n) == ("not registered", (), "", N_DRAWS, N_CASES)
    assert guest.tried(guest.edited())[1:] == (0, 0)
    for edit in (SAME, OTHER):
        assert guest.tried(guest.edited(edit))[1:] == (N_DRAWS, N_CASES), edit


def test_code_of_a_registered_measure_that_moves_is_told_and_its_values_are_compared(guest):
    register([guest.edited()], guest.directory)
    ruling, *n = guest.tried(guest.edited())
    assert (ruling.departures, ruling.code, *n) == ((), "", N_DRAWS, N_CASES)
    ruling, *n = guest.tried(guest.edited(SAME, ("The number", "# a comment: the number")))
    assert n == [0, N_CASES], "draws are kept, controls are measured anew"
    assert ruling.departures == ()
    assert ruling.code == "code moved since registration (measure); values equal"
    assert guest.tried(guest.edited(("The number", "The very number")))[0].code == "", "a docstring is no code"


def test_other_values_are_a_departure_until_another_version_is_registered(guest):
    register([guest.edited()], guest.directory)
    guest.tried(guest.edited())
    ruling, *n = guest.tried(guest.edited(OTHER))
    assert (ruling.departures, *n) == (("values",), 0, N_CASES)
    assert ruling.code == "code moved since registration (measure); values differ"
    with pytest.raises(InputError, match=r"claim X is registered otherwise \(values\)"):
        register([guest.edited(OTHER)], guest.directory)
    raised = OTHER, ("version=1", "version=2")
    ruling, *n = guest.tried(guest.edited(*raised))
    assert (ruling.departures, *n) == (("version",), N_DRAWS, N_CASES), "it counts by its source until it is registered"
    register([guest.edited(*raised)], guest.directory, reason="the offset was a slip")
    ruling, *n = guest.tried(guest.edited(*raised))
    assert (ruling.departures, ruling.code, *n) == ((), "", N_DRAWS, N_CASES)
    assert guest.tried(guest.edited(*raised))[1:] == (0, 0)


def test_registering_again_takes_moved_code_with_equal_values(guest):
    register([guest.edited()], guest.directory)
    assert register([guest.edited(SAME)], guest.directory) == ["X"]
    ruling, *_ = guest.tried(guest.edited(SAME))
    assert (ruling.departures, ruling.code) == ((), "")
    assert register([guest.edited(SAME)], guest.directory) == []


def test_a_registration_without_values_says_that_they_were_not_checked(guest):
    register([guest.edited()], guest.directory)
    file = guest.directory / "registered.json"
    content = json.loads(file.read_text())
    del content["X"]["values"]
    file.write_text(json.dumps(content))
    ruling, *_ = guest.tried(guest.edited(OTHER))
    assert ruling.departures == ()
    assert ruling.code == "code moved since registration (measure); values not checked here"


def test_other_numbers_of_the_library_are_measured_anew(guest, monkeypatch):
    register([guest.edited()], guest.directory)
    guest.tried(guest.edited())
    monkeypatch.setattr(store, "NUMBERS", store.NUMBERS + 1)
    uncached = measures.instrument.__wrapped__
    for module in (measures, store):
        monkeypatch.setattr(module, "instrument", uncached)
    assert guest.tried(guest.edited())[1:] == (N_DRAWS, N_CASES)
    assert guest.tried(guest.edited())[1:] == (0, 0)


def test_a_function_without_a_source_is_never_taken_for_another(tmp_path):
    """Also under a version: what is defined at a prompt has a name, and nothing that says what it does."""

    def taken(value: float) -> float:
        def measure(draw):
            return {"effect": value}

        measure.__module__, measure.__qualname__ = "a_prompt", "measure"
        functions._digest_modules.cache_clear()  # as in another process
        (found,) = do_work(DrawWork(measure, 0, calls=(MeasureCall(measure, version=1),)), store=tmp_path).values()
        return float(found["effect"])

    assert [taken(1.0), taken(2.0)] == [1.0, 2.0]


PRINTED = """
from inspect import unwrap
from mnemoscope.analyses.evaluation import evaluate
from mnemoscope.claims.measures import MeasureCall, instrument
assert unwrap(evaluate).__code__.co_firstlineno > N
print(instrument(), MeasureCall(evaluate, version=1).key)
"""


@pytest.mark.full
def test_a_comment_in_an_analysis_changes_no_key(tmp_path):
    """A copy of the library in which every analysis has one more line."""
    package, copy = Path(mnemoscope.__file__).parent, tmp_path / "mnemoscope"
    copy.mkdir()
    for entry in package.iterdir():
        if entry.name != "analyses":
            (copy / entry.name).symlink_to(entry)
    shutil.copytree(package / "analyses", copy / "analyses", ignore=shutil.ignore_patterns("__pycache__"))
    for file in copy.joinpath("analyses").rglob("*.py"):
        file.write_text(f"# a comment\n{file.read_text()}")
    found = subprocess.run(
        [sys.executable, "-c", PRINTED.replace("> N", f"> {unwrap(evaluate).__code__.co_firstlineno}")],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    measure: Any = evaluate
    key = MeasureCall(measure, version=1).key
    assert found.stdout.strip() == f"{measures.instrument()} {key}"
