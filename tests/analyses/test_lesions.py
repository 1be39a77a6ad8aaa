from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import mnemoscope as ms
from mnemoscope.core.errors import InputError
from mnemoscope.training.loop import train
from tests.support import seeded
from tests.training.test_clamped_training import spec_of

STEPS = [0, 50, 100, 150, 200, 300]
ALONE = [0.1, 0.6, 0.9, 0.9, 0.95, 0.95]


def planted(*rows) -> xr.DataArray:
    return xr.DataArray(np.array(rows), dims=("seed", "step"), coords={"seed": range(len(rows)), "step": STEPS})


def test_planted_courses_are_timed_from_the_lesion():
    lesioned = planted(
        [0.1, 0.6, 0.2, 0.5, 0.92, 0.96],  # back at 200
        [0.1, 0.6, 0.2, 0.88, 0.4, 0.95],  # at 150 for a moment, for good at 300
        [0.1, 0.6, 0.1, 0.2, 0.3, 0.4],  # not in time
        [0.1, 0.6, 0.9, 0.88, 0.94, 0.95],  # not hurt
        [0.1, 0.6, 0.2, np.nan, 0.9, 0.9],
    )
    found = ms.analyses.time_to_recover(lesioned, planted(*[ALONE] * 5), lesion=100)
    assert found.status.values.tolist() == ["recovered", "recovered", "never", "unhurt", "undefined"]
    np.testing.assert_array_equal(found.steps, [100, 200, np.nan, 0, np.nan])
    np.testing.assert_allclose(found.largest, [0.7, 0.7, 0.8, 0.02, 0.7])
    assert found.shortfall.sel(seed=2, step=200) == pytest.approx(0.65)
    assert found.observed == 200


def test_of_a_loss_the_excess_counts():
    alone, lesioned = planted([2.0, 1.0, 0.5, 0.4, 0.3, 0.2]), planted([2.0, 1.0, 1.5, 1.0, 0.34, 0.2])
    found = ms.analyses.time_to_recover(lesioned, alone, lesion=60, falls=True)
    assert (found.steps.item(), found.largest.item()) == (140, 1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lesion": 300}, "two steps or more must come from the lesion on, 300; got 1"),
        ({"lesion": 100, "margin": -1}, "margin must be at least 0; got -1"),
    ],
)
def test_what_cannot_be_timed_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        ms.analyses.time_to_recover(planted(ALONE), planted(ALONE), **options)


def test_steps_must_be_the_same():
    with pytest.raises(InputError, match="over the same steps; take the checkpoints that both have"):
        ms.analyses.time_to_recover(planted(ALONE), planted(ALONE).isel(step=slice(3)), lesion=0)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> tuple[list[ms.Run], list[ms.Run]]:
    place = tmp_path_factory.mktemp("recovery")

    def trained(name, texts):
        specs = [replace(spec_of(seed, texts), preset=name) for seed in (0, 1)]
        return [train(spec, place / f"{name}-{spec.seed}") for spec in specs]

    return trained("hurt", ["L0H1=zero from 8"]), trained("left", [])


def loss(model) -> float:
    task = spec_of().task
    batch = task.sample(64, split="test", generator=seeded())
    return task.loss(model(batch.inputs), batch).item()


def by_output(model) -> list[str]:
    """The heads of the first layer, from the one with the largest output on; that of a removed head is zero."""
    batch = spec_of().task.sample(64, split="test", generator=seeded())
    _, cache = model.run_with_cache(batch.inputs)
    sizes = cache["blocks.0.attn.hook_z"].abs().mean((0, 1, 3))
    return [f"L0H{head}" for head in sizes.argsort(descending=True).tolist()]


def test_lesioned_runs_are_looked_at_without_the_part(runs):
    hurt, left = runs
    found = ms.analyses.recovery(hurt, left, measure=loss, select=by_output, falls=True, margin=0.0)
    assert found.value.dims == ("run", "seed", "step")
    assert found.step.values.tolist() == [0, 8, 12, 24]
    assert found.attrs["lesion"] == 8
    assert (found.value.sel(run="lesioned", step=0) == found.value.sel(run="alone", step=0)).all()
    assert found.value.sel(run="lesioned", step=8, seed=1) == pytest.approx(
        loss(ms.analyses.with_clamps(hurt[1]).model(8))
    )
    assert found.value.sel(run="alone", step=24, seed=1) == pytest.approx(loss(left[1].model()))
    assert found.after.values.tolist() == ["L0H0", "L0H0"]
    heads = found.first_head.sel(run="alone", step=8).values.tolist()
    assert found.before.values.tolist() == heads
    assert found.rank_before.values.tolist() == [1 if head == "L0H0" else 2 for head in heads]


def test_runs_that_do_not_belong_together_are_refused(runs):
    hurt, left = runs
    for lesioned, alone in ((hurt, hurt), (left, hurt)):
        with pytest.raises(InputError, match="must differ in clamps that the first has more"):
            ms.analyses.recovery(lesioned, alone, measure=loss)
    with pytest.raises(InputError, match="runs of the same seeds in the same order"):
        ms.analyses.recovery(hurt, left[::-1], measure=loss)
