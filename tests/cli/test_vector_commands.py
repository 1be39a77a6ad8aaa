"""The commands that look at runs, on a task of vectors that has no entry of its own."""

import shutil
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
import xarray as xr

from mnemoscope.cli import main
from mnemoscope.core.specification import ModelSpec, Recipe, RunSpec
from mnemoscope.report.task_report import REPORTS
from mnemoscope.systems.retrieval.constructed import chain_follower
from mnemoscope.systems.retrieval.tasks import Retrieval
from tests.support import ends_with

SPEC = RunSpec(
    task=Retrieval(n_chains=2, n_steps=1),
    model=ModelSpec(d_model=16, n_heads=2, n_layers=2, act_fn="gelu", positions=False),
    recipe=Recipe(n_steps=20, batch_size=16, metrics_every=10, checkpoint_steps=(10,)),
    seed=0,
)


@pytest.fixture(scope="session")
def solved(trained_once, tmp_path_factory):
    """Two seeds whose last checkpoint is a circuit that was set by hand, since training takes minutes."""
    place = tmp_path_factory.mktemp("solved")
    model = chain_follower(1, n_chains=2, positions=True)
    for seed in (0, 1):
        ends_with(model, trained_once(f"vectors/seed-{seed}", replace(SPEC, seed=seed)), place / f"seed-{seed}")
    return place


@pytest.fixture(autouse=True)
def two_runs(tmp_path, monkeypatch, solved):
    """The two seeds in the directory `runs`, and no entry of the task."""
    shutil.copytree(solved, tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    REPORTS.names()  # those of the package are there before
    without = {name: entry for name, entry in REPORTS._items.items() if name != SPEC.task.name}
    with mock.patch.dict(REPORTS._items, without, clear=True):
        yield


def test_errors_stand_beside_the_exact_predictors(capsys):
    main(["evaluate", "runs", "--n-samples", "64", "--out", "tables"])
    out = capsys.readouterr().out
    assert "squared error" in out
    assert "all but last" in out
    evaluation = xr.load_dataset(Path("tables") / SPEC.label / "evaluation.nc")
    assert evaluation.loss.dims == ("seed", "split", "part")
    assert evaluation["part"].values.tolist() == ["all", "x1"]


def test_the_page_shows_errors_of_parts(capsys):
    main(["report", "runs"])
    page = Path("report.html").read_text(encoding="utf-8")
    assert "<title>Retrieval</title>" in page
    for section in ("what-was-learned", "removing-one-component", "training", "single-sequences"):
        assert f'<h2 id="{section}"' in page
    assert "squared error of the parts, unseen" in page
    assert "nats" not in page


@pytest.mark.full
@pytest.mark.parametrize(
    "words",
    [
        ["patch", "--n", "16", "--kind", "z", "--over", "layer", "head"],
        ["ablate", "--n", "32"],
        pytest.param(["edges", "--n", "8", "--corruption", "rewire"], marks=pytest.mark.thorough),
        pytest.param(["ablate", "--n", "8", "--what", "positions"], marks=pytest.mark.thorough),
        pytest.param(["heads", "--n", "64"], marks=pytest.mark.thorough),
    ],
    ids=lambda words: " ".join(words),
)
def test_what_makes_sense_of_vectors_works_on_them(words, capsys):
    main([words[0], "runs", *words[1:]])
    capsys.readouterr()
    assert (Path("results") / SPEC.label / words[0] / f"{words[0]}.html").exists()


def test_losses_of_parts_are_followed(capsys):
    main(["evaluate", "--checkpoints", "runs"])
    out = capsys.readouterr().out
    assert "loss x1" in out
    assert "half-way down" in out


@pytest.mark.parametrize("command", ["circuits", "neurons", "probe", "shapley", "truncate", "discover"])
def test_what_is_about_tokens_is_refused_in_one_line(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([command, "runs"])
    assert end.value.code == 2
    assert f"{command} is about tokens, and runs on retrieval read and give vectors" in capsys.readouterr().err


def test_an_unseen_sequence_of_vectors_is_shown_by_its_number(capsys):
    main(["predict", "runs/seed-0", "3"])
    out = capsys.readouterr().out
    rows = [line.split()[:2] for line in out.splitlines() if line.strip().startswith("query")]
    assert rows == [["query1", "all"], ["query1", "x1"], ["query2", "all"], ["query2", "x1"]]
    assert "nearest exact predictor" in out
    main(["predict", "runs/seed-0", "3", "--out", "view.html"])
    page = Path("view.html").read_text(encoding="utf-8")
    assert "CircuitsVis.render" in page
    assert "squared error of the model" in page


def test_a_sequence_of_vectors_cannot_be_typed(capsys):
    with pytest.raises(SystemExit) as end:
        main(["predict", "runs/seed-0", "1 2 3"])
    assert end.value.code == 2
    assert "consists of vectors, which cannot be typed" in capsys.readouterr().err


def test_a_metric_of_tokens_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["patch", "runs", "--n", "8", "--metrics", "logit_diff"])
    assert "metric logit_diff is of logits, and the model gives vectors" in capsys.readouterr().err
