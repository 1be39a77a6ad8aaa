import pytest
import xarray as xr

from mnemoscope.records.record import MeasuredRuns
from mnemoscope.records.truncate import Truncate, finding, rank_figure, score_table, spectrum_figure
from mnemoscope.systems.in_context_bigrams.analyses.noise_or_context import removed, truncated
from mnemoscope.systems.in_context_bigrams.constructed import noisy_induction
from mnemoscope.systems.in_context_bigrams.tasks import NoisyRecall
from mnemoscope.systems.in_context_bigrams.truncation import REMOVED_HEADER, removed_rows
from tests.records.planted import SEEDS, along
from tests.support import seeded

TASK = NoisyRecall(length=32, n_tokens=6, n_triggers=2)


@pytest.fixture(scope="module")
def seeds():
    """Two models, the second one with half the margin, cut at three ranks; and the same without their last parts."""
    batch = TASK.sample(32, split="test", generator=seeded())
    models = [noisy_induction(6, 32, triggers=(0, 1), margin=margin) for margin in (20.0, 10.0)]
    cuts = [truncated(model, TASK, batch) for model in models]
    without = [removed(model, TASK, batch, reference=batch) for model in models]
    return tuple(xr.concat(each, xr.DataArray([3, 4], dims="seed", name="seed")) for each in (cuts, without))


def test_rows_of_every_cut(seeds):
    found, _ = seeds
    table = score_table(found, "probability")
    header, rows = table.header, table.rows
    assert header == ["weight", "components", "rank", "noise_token", "output", "context share"]
    assert len(rows) == 1 + 3 * 2 * 3
    assert all(len(row) == len(header) for row in rows)
    both = found.clean_probability.sel(target="output").values
    assert rows[0][:3] == ["nothing", "", ""]
    assert rows[0][4] == f"{both.mean():.2f} [{both.min():.2f}, {both.max():.2f}]"
    gone = next(row for row in rows if row[:3] == ["L1 W_out", "largest removed", "1"])
    assert gone[5] == "1.00 [0.99, 1.00]" or gone[5].startswith("1.00")
    assert score_table(found, "accuracy").header[-1] == "output"
    assert score_table(found.drop_vars("context_share"), "accuracy").rows[3][1:3] == ["largest kept", "2"]


def test_rows_of_parts_that_are_removed(seeds):
    _, found = seeds
    rows = removed_rows(found)
    assert [row[:2] for row in rows] == [
        ["nothing", ""],
        ["last attention", "mean"],
        ["last attention", "zero"],
        ["last MLP", "mean"],
        ["last MLP", "zero"],
    ]
    assert all(len(row) == len(REMOVED_HEADER) for row in rows)


def test_a_curve_a_target_with_the_range_over_seeds(seeds):
    found, _ = seeds
    figure = rank_figure(found)
    lines = [trace for trace in figure.data if trace.mode == "lines+markers"]
    assert len(lines) == 3 * 2 * 2
    assert [trace.name for trace in lines if trace.showlegend] == ["noise token", "output"]
    at = found.probability.sel(weight="L1 W_in", part="top", target="noise_token")
    assert lines[0].x == ("0", "1", "2")
    assert lines[0].y == pytest.approx(at.mean("seed").values)
    band = next(trace for trace in figure.data if trace.fill == "toself")
    assert band.y == pytest.approx([*at.max("seed").values, *at.min("seed").values[::-1]])
    alone = rank_figure(found.isel(seed=[0]))
    assert not any(trace.fill for trace in alone.data)


def test_spectra_a_line_a_matrix_and_seed(seeds):
    figure = spectrum_figure(seeds[0])
    assert [trace.name for trace in figure.data] == ["L1 W_in", "L1 W_in", "L1 W_out", "L1 W_out"]
    assert figure.data[2].y == pytest.approx([20 * 2**0.5, 0], abs=1e-4)
    assert figure.data[0].x.tolist() == [1, 2]


@pytest.mark.parametrize(("kept", "words"), [(0.95, "copy rank 4"), (0.5, "copy more than any rank tried")])
def test_the_rank_that_is_needed(kept, words):
    coords = {"weight": ["W_in"], "part": ["top"], "rank": [0, 4], "target": ["copy"]}
    probability = along(
        ("weight", "part", "rank", "target"), (1, 1, 2, 1), {("W_in", "top", 4, "copy"): kept}, **coords
    )
    clean = xr.DataArray([[1.0], [0.9]], dims=("seed", "target"), coords={"seed": SEEDS, "target": ["copy"]})
    full = xr.DataArray([[8], [8]], dims=("seed", "weight"), coords={"seed": SEEDS, "weight": ["W_in"]})
    found = xr.Dataset({"probability": probability, "clean_probability": clean, "full_rank": full})
    said = finding(MeasuredRuns(results={"truncation": found}, options=Truncate(), runs=[]))
    assert said == f"To keep 0.9 of the probability of its answer with W_in cut, of 8: {words}."
