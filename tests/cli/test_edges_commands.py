"""`mnemoscope edges` and `mnemoscope shapley`: arrays, tables and a page for runs of any task, and what they refuse."""

import csv
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import xarray as xr

from mnemoscope import analyses
from mnemoscope.analyses.patching import effects, patch_edges
from mnemoscope.analyses.roles import last_roles
from mnemoscope.analyses.shapley import removal_agreement
from mnemoscope.cli import main
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.seeding import generator
from mnemoscope.models.run import find_runs
from mnemoscope.records import edges
from mnemoscope.training.loop import train
from tests.cli import written
from tests.support import small_spec

ARRAYS = {
    "edges": {f"{what}_{skill}" for what in ("edges", "estimates", "errors") for skill in ("elimination", "recall")},
    "shapley": {"shapley", "agreement"},
}
TABLES = {
    "edges": {"logit_diff", "logit_diff-estimates", "logit_diff-errors"},
    "shapley": {
        *(f"{what}-{metric}" for what in ("values", "interactions") for metric in ("accuracy", "log_prob")),
        "agreement",
        "dissociation",
    },
}


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    """Two seeds of a v3 of two layers after 60 steps."""
    path = tmp_path_factory.mktemp("deep")
    for seed in (3, 4):
        train(small_spec("v3", seed=seed, changes={"model.n_layers": 2}), path / f"seed-{seed}")
    return path


@pytest.fixture(autouse=True)
def empty_directory(tmp_path, monkeypatch, as_installed):
    monkeypatch.chdir(tmp_path)


def table(place: Path, name: str) -> tuple[list[str], dict[str, list[str]]]:
    """Header, and the other cells by the first one."""
    header, *rows = csv.reader((place / f"{name}.csv").open())
    assert all(len(row) == len(header) for row in rows)
    return header, {row[0]: row[1:] for row in rows}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["edges", "shapley"])
def test_arrays_tables_and_a_page(name, two_seeds, tmp_path, capsys):
    main([name, str(two_seeds), "--n", "24"])
    (place,) = tmp_path.glob(f"results/v3+*-quick/{name}")
    assert {file.stem for file in place.glob("*.nc")} == ARRAYS[name] | {
        "gate",
        *(["roles"] if name == "edges" else []),
    }
    assert written.tables(place) == TABLES[name]
    assert "plotly" in (place / f"{name}.html").read_text()
    assert "2 seeds" in capsys.readouterr().out
    for array in ARRAYS[name]:
        assert xr.open_dataset(place / f"{array}.nc").seed.values.tolist() == [3, 4]


def test_edges_are_those_of_the_sweep_with_heads_by_role(two_seeds, tmp_path):
    main(["edges", str(two_seeds), "--n", "24", "--skills", "elimination", "--no-approximate", "--out", "out"])
    (place,) = tmp_path.glob("out/*/edges")
    assert written.tables(place) == {"logit_diff"}
    found, component = xr.open_dataset(place / "edges_elimination.nc"), xr.open_dataset(place / "roles.nc").component
    for run in find_runs([two_seeds]):
        task, seed = run.spec.task, run.spec.seed
        named = last_roles(run)
        assert component.sel(seed=seed).values.tolist() == list(named)
        batch = task.monitor(24, split="test", generator=generator(seed, "edges", "test"))
        mask = task.skills(batch)["elimination"]
        rows = mask.any(1)
        pairs = PromptPairs.from_task(task, batch.select(rows), kind=task.corruptions[0], seed=seed).read_at(mask[rows])
        expected = effects(patch_edges(run.model(), pairs), refuse=False)
        head = next(name for name, role in named.items() if role == "elimination head")
        for by_role, by_number in (
            ("elimination head → L0 MLP", f"{head} → L0 MLP"),
            ("input → elimination head v", f"input → {head} v"),
        ):
            np.testing.assert_allclose(
                found.ratio.sel(seed=seed, edge=by_role), expected.ratio.sel(edge=by_number), rtol=1e-6
            )
    header, rows = table(place, "logit_diff")
    assert header == ["edge", "elimination, necessity", "elimination, sufficiency"]
    assert list(rows) == ["clean less corrupted, logits", *found.edge.values]


@pytest.mark.parametrize(
    ("words", "tables"),
    [
        (["--effect", "direct"], {"logit_diff"}),
        (["--freeze", "attention", "layer_norm"], {"logit_diff"}),
        (["--metrics", "accuracy", "kl"], {"accuracy", "kl"}),
        (["--metrics", "kl", "prob"], {"kl", "prob", "prob-estimates", "prob-errors"}),
    ],
)
def test_only_what_has_an_estimate_is_estimated(words, tables, two_seeds, tmp_path):
    main(["edges", str(two_seeds / "seed-3"), "--n", "24", "--skills", "elimination", *words])
    (place,) = tmp_path.glob("results/*/edges")
    assert written.tables(place) == tables
    assert ("EAP-IG" in (place / "edges.html").read_text()) == any("-" in name for name in tables)


@pytest.mark.full
def test_heads_of_one_role_may_lie_in_different_layers(deep, tmp_path, monkeypatch):
    """Seed 3 has the elimination head below the first of the others, seed 4 above it."""
    roles = ["elimination head", "other head 1", "other head 2", "other head 3", "L0 MLP", "L1 MLP"]
    monkeypatch.setattr(edges, "MOST", 100)
    below, above = ["L0H0", "L1H0", "L0H1", "L1H1"], ["L1H0", "L0H0", "L0H1", "L1H1"]

    def edges_where(heads):
        def named(run):
            return dict(zip([*heads[run.spec.seed], "L0 MLP", "L1 MLP"], roles, strict=True))

        with mock.patch.object(analyses, "last_roles", named):
            main(["edges", str(deep), "--n", "24", "--skills", "elimination", "--no-approximate"])
        (place,) = tmp_path.glob("results/*/edges")
        return place, (place / "edges.html").read_text()

    place, page = edges_where({3: below, 4: above})
    header, rows = table(place, "logit_diff")
    assert header[-1] == "seeds that have it"
    counts = {name: cells[-1] for name, cells in rows.items()}
    assert counts["elimination head → other head 1 q"] == counts["other head 1 → elimination head q"] == "1"
    assert counts["elimination head → logits"] == "2"
    found = xr.open_dataset(place / "edges_elimination.nc")
    lacking = found.value.isnull().all(["direction", "metric", "prompt"]).sel(edge="elimination head → other head 1 q")
    assert lacking.values.tolist() == [False, True]
    assert "Heads of one role lie in different layers" in page
    assert "necessity, seed 3" in page
    place, page = edges_where({3: below, 4: below})
    assert table(place, "logit_diff")[0][-1] == "elimination, sufficiency"
    assert "mean over 2 seeds" in page


def test_values_and_agreement_go_by_role(two_seeds, tmp_path):
    main(["shapley", str(two_seeds), "--n", "24", "--kinds", "zero", "mean", "--within", "is_repeat"])
    (place,) = tmp_path.glob("results/*/shapley")
    values = xr.open_dataset(place / "shapley.nc")
    assert values.role.values.tolist() == values.other.values.tolist() == ["elimination head", "other head", "L0 MLP"]
    assert values.kind.values.tolist() == ["zero", "mean"]
    assert values.attrs["within"] == "is_repeat"
    np.testing.assert_allclose(values.value.sum("role"), values.carried, atol=1e-9)
    np.testing.assert_allclose(values.interaction, values.interaction.transpose(*_exchanged(values.interaction.dims)))
    stored = xr.open_dataset(place / "agreement.nc")
    assert stored.by_value.equals(removal_agreement(values).by_value)
    assert set(stored.partner.values.ravel()) <= {"", *values.role.values}


def _exchanged(dims):
    """The dimensions with role and other in each other's place."""
    return [{"role": "other", "other": "role"}.get(dim, dim) for dim in dims]


@pytest.mark.full
def test_orders_can_be_sampled(two_seeds, tmp_path):
    main(["shapley", str(two_seeds / "seed-3"), "--n", "24", "--samples", "8"])
    (place,) = tmp_path.glob("results/*/shapley")
    values = xr.open_dataset(place / "shapley.nc")
    assert values.attrs["n_samples"] == 8
    at = values.sel(metric="accuracy", skill="recall", role="L0 MLP", kind="mean").isel(seed=0)
    header, *rows = csv.reader((place / "values-accuracy.csv").open())
    cell = next(row for row in rows if row[1] == "L0 MLP")[header.index("recall, value")]
    assert cell == f"{float(at.value):.2f} [{float(at.low):.2f}, {float(at.high):.2f}]"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["edges", "shapley"])
@pytest.mark.usefixtures("copy_run")
def test_runs_of_another_task(name, tmp_path):
    main([name, "run", "--n", "40"])
    (place,) = tmp_path.glob(f"results/*/{name}")
    assert (place / f"{name}.html").exists()
    assert not (place / "agreement.nc").exists()  # it needs two skills


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["edges", "runs", "--corruption", "scramble"], "exchange_answer"),
        (["edges", "runs", "--corruption", "permute_pairs"], "another --corruption"),
        (["edges", "runs", "--corruption", "move_repeat"], "sequences with a repeat"),
        (["edges", "runs", "--metrics", "logit"], "logit_diff"),
        (["edges", "runs", "--metrics", "prob", "prob"], "each once"),
        (["edges", "runs", "--skills", "guessing"], "elimination, recall"),
        (["edges", "runs", "--n", "1"], "at least 2"),
        (["edges", "runs", "--step", "7"], "60"),
        (["shapley", "runs", "--n", "1"], "at least 2"),
        (["shapley", "runs", "--samples", "3"], "at least 8"),
        (["shapley", "runs", "--within", "weather"], "is_repeat"),
        (["shapley", "runs", "--kinds", "mean", "mean"], "each kind once"),
    ],
)
def test_wrong_input_gets_one_line_and_writes_nothing(words, named, refused):
    assert named in refused(words)


def test_a_model_of_one_part_has_nothing_to_share(tmp_path, capsys):
    train(small_spec("v3", changes={"model.n_heads": 1, "model.mlp": False}), tmp_path / "runs")
    with pytest.raises(SystemExit):
        main(["shapley", "runs", "--n", "24"])
    assert "the number of players" in capsys.readouterr().err
