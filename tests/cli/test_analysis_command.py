"""`analysis_command`, by which guests made commands before there were records, works for one release more."""

from dataclasses import dataclass
from unittest import mock

import pytest
import xarray as xr

from mnemoscope.cli import COMMANDS, AnalysisOptions, Display, analysis_command, main
from mnemoscope.core.errors import InputError
from mnemoscope.report.tables import Table


@dataclass(frozen=True, kw_only=True)
class Steps(AnalysisOptions):
    """The number of training steps."""

    n: int = 2
    """Sequences."""


def measure(run, options):
    return {"steps": xr.Dataset({"steps": ((), float(run.last_step))})}


def show(results, options, runs):
    rows = [["steps", str(int(results["steps"].steps.mean()))]]
    return Display(
        finding="Trained.", tables=[Table(name="steps", title="steps", header=["", "n"], rows=rows)], figures=[]
    )


def check(options):
    if options.n > 100:
        raise InputError("--n is too large")


def finish(label, runs, results, options):
    return {**results, "doubled": results["steps"] * len(runs)}


@pytest.fixture
def command():
    COMMANDS.names()
    with mock.patch.dict(COMMANDS._items):
        with pytest.warns(FutureWarning, match=r"register a mnemoscope\.records\.Record"):
            analysis_command("steps", Steps, measure=measure, show=show, check=check, finish=finish, vectors=True)
        yield "steps"


@pytest.mark.full
def test_it_measures_shows_and_writes(command, two_seeds, tmp_path, capsys):
    main([command, str(two_seeds), "--out", str(tmp_path)])
    (place,) = tmp_path.glob("*/steps")
    assert xr.open_dataset(place / "steps.nc").seed.values.tolist() == [3, 4]
    assert xr.open_dataset(place / "doubled.nc").steps.values.tolist() == [120, 120]
    assert (place / "steps.csv").read_text().splitlines()[1] == "steps,60"
    assert "Trained." in capsys.readouterr().out


@pytest.mark.parametrize(("n", "said"), [("1", "--n must be at least 2; got 1"), ("200", "--n is too large")])
def test_it_refuses_what_it_did(command, two_seeds, tmp_path, capsys, n, said):
    with pytest.raises(SystemExit):
        main([command, str(two_seeds), "--n", n, "--out", str(tmp_path / "out")])
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
