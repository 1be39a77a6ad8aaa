from dataclasses import replace
from pathlib import Path

import pytest
import xarray as xr

from mnemoscope.analyses.stacking import along_seed, concatenate, side_by_side
from mnemoscope.core.errors import InputError
from mnemoscope.models.run import Run
from tests.support import small_spec


def result(value: float, *, component: str = "L0H0", **attrs):
    return xr.Dataset(
        {"cost": ("role", [value, 2 * value]), "floor": ((), 0.5)},
        coords={"role": ["elimination head", "other head"], "component": ("role", [component, "L0 MLP"])},
        attrs={"unit": "nats", **attrs},
    )


def runs(*seeds: int, preset: str = "v3"):
    return [Run(Path(f"seed-{seed}"), small_spec(preset, seed=seed)) for seed in seeds]


def test_along_a_dimension():
    together = concatenate("step", {0: result(1.0, step_seen=0), 50: result(3.0, component="L0H1", step_seen=50)})
    assert together.step.values.tolist() == [0, 50]
    assert together.cost.sel(role="other head").values.tolist() == [2, 6]
    assert together.floor.dims == ("step",)
    assert together.attrs == {"unit": "nats"}
    assert together.component.sel(role="elimination head").values.tolist() == ["L0H0", "L0H1"]


def test_coordinates_in_common_stay_without_the_dimension():
    assert concatenate("step", {0: result(1.0), 50: result(2.0)}).component.dims == ("role",)


def test_an_array_stays_an_array():
    together = concatenate("step", {1: result(1.0).cost, 2: result(2.0).cost})
    assert isinstance(together, xr.DataArray)
    assert together.dims == ("step", "role")
    assert together.name == "cost"


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (result(1.0).isel(role=[1, 0]), "same coordinate role; got \\['elimination head', 'other head'\\] and"),
        (result(1.0).isel(role=[0]), "same coordinate role"),
        (result(1.0).drop_vars("floor"), "same variables; got \\['cost', 'floor'\\] and \\['cost'\\]"),
        (result(1.0).rename(role="head"), "same dimensions"),
        (result(1.0).assign_coords(step=3), "step 1 has a dimension or coordinate step already"),
    ],
)
def test_results_that_differ_are_refused(other, message):
    with pytest.raises(InputError, match=message):
        concatenate("step", {0: result(1.0), 1: other})


def test_nothing_is_refused():
    with pytest.raises(InputError, match="at least one"):
        concatenate("step", {})


def test_what_is_no_labelled_result_is_refused(as_installed):
    with pytest.raises(InputError, match="step 0 must be a Dataset or DataArray; got float"):
        concatenate("step", {0: 0.5})


def test_along_seed():
    group = runs(3, 1)
    together = along_seed(group, (result(float(run.spec.seed)) for run in group))
    assert together.cost.sel(seed=1, role="elimination head") == 1
    assert together.seed.values.tolist() == [3, 1]


def test_unlike_runs_are_not_concatenated():
    with pytest.raises(InputError, match=r"one configuration; got those of .*v3.*v1.*side_by_side"):
        along_seed([*runs(0), *runs(1, preset="v1")], [result(1.0), result(1.0)])
    other = runs(1)[0]
    wider = Run(other.path, replace(other.spec, model=replace(other.spec.model, d_model=64)))
    with pytest.raises(InputError, match="different configurations"):
        along_seed([*runs(0), wider], [result(1.0), result(1.0)])
    with pytest.raises(InputError, match="is named twice"):
        along_seed(runs(2, 2), [result(1.0), result(1.0)])
    with pytest.raises(InputError, match="got none"):
        along_seed([], [])


def test_runs_with_other_steps_say_what_to_do():
    longer, shorter = (concatenate("step", {step: result(1.0) for step in steps}) for steps in ((0, 10, 30), (0, 10)))
    with pytest.raises(InputError, match=r"seed 0 and seed 1 .*step; got .*choose steps that all runs have"):
        along_seed(runs(0, 1), [longer, shorter])


def test_a_run_that_stopped_early_stays_as_it_was():
    early = [Run(Path(f"seed-{n}"), small_spec(seed=n, changes={"recipe.stop_at": 0.5})) for n in (3, 4)]
    losses = [
        xr.DataArray([2.0, 1.0], {"step": [0, 10]}, name="loss"),
        xr.DataArray([3.0, 2.5], {"step": [0, 30]}, name="loss"),
    ]
    together = along_seed(early, losses)
    assert together.step.values.tolist() == [0, 10, 30]
    assert together.sel(seed=3).values.tolist() == [2.0, 1.0, 1.0]
    assert together.sel(seed=4).values.tolist() == [3.0, 3.0, 2.5]
    assert along_seed(early, [result(1.0), result(2.0)]).cost.sizes["seed"] == 2


def test_side_by_side():
    tree = side_by_side({"v1-quick": result(1.0), "v3-quick": result(2.0).isel(role=[0])})
    assert list(tree.children) == ["v1-quick", "v3-quick"]
    assert tree["v3-quick"].cost.values.tolist() == [2]
    assert tree["v1-quick"].sizes == {"role": 2}
    with pytest.raises(InputError, match="without a slash"):
        side_by_side({"v1/quick": result(1.0)})
