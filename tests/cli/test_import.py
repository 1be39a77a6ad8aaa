"""`--import`: a task that is not installed, in every process, from any directory."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import pytest

from mnemoscope.claims import functions, measures
from mnemoscope.cli import main
from mnemoscope.core import guests
from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import PRESETS, SYSTEMS
from mnemoscope.core.specification import TASKS
from mnemoscope.models.run import open_run

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "copy_task.py"
SHORT = ["--set", "recipe.n_steps=4", "recipe.metrics_every=2"]


@pytest.fixture
def as_found():
    """No guest stays, and nothing that one registers."""
    with ExitStack() as stack:
        for registry in (TASKS, PRESETS, SYSTEMS):
            registry.names()  # those of the package are there before
            stack.enter_context(mock.patch.dict(registry._items))
        stack.enter_context(mock.patch.dict(guests._invited))
        yield
    sys.modules.pop(EXAMPLE.stem, None)


@pytest.mark.usefixtures("as_found")
@pytest.mark.thorough
def test_workers_know_the_guests_too(tmp_path, monkeypatch, capsys):
    """The workers come from a server that was there before the guest."""
    guest = tmp_path / "elsewhere" / "copy_task.py"
    guest.parent.mkdir()
    shutil.copy(EXAMPLE, guest)
    monkeypatch.chdir(tmp_path)
    two = ("--jobs", "2")
    main(["train", "--preset", "copy-small", "--seeds", "0,1", "--import", str(guest), *two, *SHORT])
    assert "2 finished runs" in capsys.readouterr().out
    main(["evaluate", "runs", "--n-samples", "20", "--import", str(guest), *two])
    assert "copying" in capsys.readouterr().out


@pytest.mark.thorough  # two processes, each with a server of workers, that import everything
def test_commands_in_processes_of_their_own_know_the_guests(tmp_path):
    def mnemoscope(*words) -> str:
        command = [sys.executable, "-m", "mnemoscope.cli", *map(str, words)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    options = ("--import", EXAMPLE, "--jobs", "2")
    words = ("train", "--preset", "copy-small", "--seeds", "0,1", *options, *SHORT)
    assert "2 finished runs" in mnemoscope(*words)
    assert "copying" in mnemoscope("evaluate", "runs", "--n-samples", "20", *options)
    (tmp_path / "config.yaml").write_text(f"import: [{EXAMPLE}]\nevaluate: {{n_samples: 20, jobs: 2}}\n")
    assert "copying" in mnemoscope("evaluate", "runs", "--config", "config.yaml")


@pytest.mark.usefixtures("as_found")
def test_runs_remember_the_file_that_brought_their_task(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["train", "--preset", "copy-small", "--seeds", "0", "--import", str(EXAMPLE), *SHORT])
    [file] = tmp_path.glob("runs/*/seed-00/run.json")
    assert json.loads(file.read_text())["guest"] == str(EXAMPLE)
    capsys.readouterr()
    TASKS._items.pop("copy")
    guests._invited.clear()
    with pytest.raises(InputError, match=rf"; the run was trained with --import {EXAMPLE}: give it again"):
        open_run(file.parent)
    content = json.loads(file.read_text())
    del content["guest"]
    file.write_text(json.dumps(content))
    with pytest.raises(InputError, match="; a task of your own is found with --import FILE"):
        open_run(file.parent)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["list", "--import"], "must name a Python file or a module"),
        (["list", "--import", "absent.py"], "--import absent.py: there is no such file"),
        (["list", "--import", "no_such_module"], "--import no_such_module cannot be imported"),
        (["list", "--config", "wrong.yaml"], "import in wrong.yaml must be a list"),
    ],
)
def test_guests_that_cannot_be_imported_are_one_line(words, named, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("wrong.yaml").write_text("import: {copy: copy_task.py}\n", encoding="utf-8")
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("mnemoscope: ")
    assert named in error
    assert len(error.strip().splitlines()) == 1


def test_an_edited_guest_is_measured_again(tmp_path, monkeypatch):
    """What was kept belongs to the source of the measure, wherever that lies."""
    file, before = tmp_path / "edited_guest.py", dict(guests._invited)
    times = tmp_path / "times"

    def measured(value):
        """By a process that begins with this source."""
        count = f"open({str(times)!r}, 'a').write('.')"
        file.write_text(f"def measure(draw):\n    {count}\n    return {{'value': {value}.0 + draw}}\n")
        sys.modules.pop("edited_guest", None)
        functions._digest_modules.cache_clear()
        call = measures.MeasureCall(guests.invite(str(file)).measure)
        work = measures.DrawWork(call.measure, 1, calls=(call,))
        (found,) = measures.do_work(work, store=tmp_path / "measured").values()
        return found["value"]

    try:
        assert (measured(2), times.read_text()) == (3, ".")
        assert (measured(2), times.read_text()) == (3, ".")  # found, not measured
        assert (measured(25), times.read_text()) == (26, "..")
    finally:
        sys.modules.pop("edited_guest", None)
        guests._invited.clear()
        guests._invited.update(before)


@pytest.fixture
def broken_lab(tmp_path):
    """An installed distribution whose presets cannot be imported; a function that runs a command beside it."""
    package = tmp_path / "site" / "broken_lab"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "presets.py").write_text("raise RuntimeError('no\\nsuch luck')\n")
    about = tmp_path / "site" / "broken_lab-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-lab\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[mnemoscope.systems]\nbroken-lab = broken_lab\n")
    path = os.pathsep.join([str(package.parent), *sys.path])

    def run(*words, before=""):
        source = f"{before}\nfrom mnemoscope.cli import main; main({list(words)!r})"
        environment = {**os.environ, "PYTHONPATH": path}
        command = [sys.executable, "-c", source]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return package, run


@pytest.mark.full
def test_commands_go_on_without_a_system_that_cannot_be_imported(broken_lab):
    package, run = broken_lab
    done = run("list", "systems")
    assert done.returncode == 0
    assert "tiny-recall" in done.stdout
    (warning,) = done.stderr.splitlines()
    assert "the system broken_lab cannot be imported (RuntimeError: no such luck); mend or uninstall it" in warning
    (package / "commands.py").write_text("import no_such_module\n")
    done = run("--help")
    assert done.returncode == 0
    assert "claims run" in done.stdout
    (warning,) = done.stderr.splitlines()
    assert "broken_lab cannot be imported (ModuleNotFoundError: No module named 'no_such_module')" in warning


@pytest.mark.full
def test_what_needs_a_system_that_cannot_be_imported_is_refused(broken_lab):
    _, run = broken_lab
    done = run("train", "--preset", "broken-preset", before="import logging; logging.disable()")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "got 'broken-preset'" in done.stderr


def test_what_a_broken_system_still_registered_is_refused_by_its_module(monkeypatch):
    monkeypatch.setattr(guests, "guests", lambda: ("half_a_lab", "whole_lab"))
    monkeypatch.setitem(guests._broken, "half_a_lab", "the system half_a_lab cannot be imported")
    guests.check_importable("whole_lab.claims.one")
    guests.check_importable("elsewhere")
    with pytest.raises(InputError, match="half_a_lab cannot be imported"):
        guests.check_importable("half_a_lab.claims.one")
