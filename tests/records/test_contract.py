"""What holds for the record of every analysis, of this package and of guests."""

import subprocess
import sys
from dataclasses import fields

import pytest
import xarray as xr

from mnemoscope.cli.command import commands
from mnemoscope.core.errors import InputError
from mnemoscope.records.record import GATE, Options, analyse, records, render_results
from mnemoscope.report.tables import Table

QUICK = {
    "circuits": {"n": 64},
    "discover": {"n": 16, "n_random": 4},
    "heads": {"n": 64},
    "interchange": {"n": 64, "n_pairs": 64, "n_random": 2},
    "learning-coefficient": {"n": 16, "burn_in": 20, "draws": 10, "n_chains": 2},
    "neurons": {"n": 64, "sampled": True},
    "patch": {"n": 16},
    "edges": {"n": 16},
    "probe": {"n": 32, "latents": ("target",), "sites": ("resid_post",)},
    "shapley": {"n": 32},
    "truncate": {"n": 32, "ranks": (0, 8)},
}
NAMES = sorted(records())


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_is(name):
    record = records()[name]
    assert record.name == name
    assert issubclass(record.options, Options)
    assert "n" in {field.name for field in fields(record.options)}
    assert record.options.__doc__.strip().endswith(".")
    assert record.limits
    assert all(sentence.endswith(".") for sentence in record.limits)
    assert any("not" in sentence for sentence in record.limits)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_a_command_with_its_options(name):
    command = commands()[name]
    assert command.summary == records()[name].options.__doc__.strip().split("\n")[0]
    names = {field.name for field in fields(command.options)}
    assert names >= {field.name for field in fields(records()[name].options)} | {"runs", "out", "jobs"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", NAMES)
def test_results_are_labelled_and_shown(name, learned_pair):
    measured = analyse(name, learned_pair, **QUICK.get(name, {"n": 64}))
    assert measured.results[GATE].seed.values.tolist() == [run.spec.seed for run in learned_pair]
    assert all(isinstance(each, xr.Dataset | xr.DataTree) for each in measured.results.values())
    display = render_results(records()[name], measured)
    assert display.tables
    assert all(isinstance(table, Table) and table.rows for table in display.tables)
    assert all(len(row) == len(table.header) for table in display.tables for row in table.rows)
    assert display.figures
    assert all(caption and figure.data for caption, figure in display.figures)
    assert display.finding.endswith(".")
    assert set(display.notes) >= set(records()[name].limits)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("edges", "patch")])
def test_models_that_learned_nothing_need_nothing(name, untrained_pair):
    measured = analyse(name, untrained_pair, **QUICK.get(name, {"n": 64}))
    assert not measured.results[GATE].learned.any()
    finding = render_results(records()[name], measured).finding
    assert finding.startswith("No model beats every baseline of its task (2 seeds; not beaten: ")
    assert not {"need", "needs", "explained", "most", "costs"} & set(finding.replace(",", "").split())


@pytest.mark.parametrize("name", ["edges", "patch"])
def test_nothing_is_patched_where_prompts_are_not_told_apart(name, untrained_pair):
    with pytest.raises(InputError, match="tells clean from corrupted sequences apart"):
        analyse(name, untrained_pair, n=16)


def test_an_option_that_does_not_exist_is_refused(untrained_pair):
    with pytest.raises(InputError, match="an option of truncate"):
        analyse("truncate", untrained_pair, rank=3)


def test_runs_of_two_configurations_are_refused(untrained_pair, learned):
    with pytest.raises(InputError, match="one configuration"):
        analyse("ablate", [*untrained_pair, learned])


def test_the_list_of_analyses_waits_for_nothing():
    code = "import sys; from mnemoscope.records.record import records; records()\n"
    code += "print({*sys.modules} & {'torch', 'numpy', 'plotly', 'pandas', 'transformer_lens'})"
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said.strip() == "set()"
