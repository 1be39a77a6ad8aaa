from functools import partial

import pytest
import torch
import xarray as xr

from mnemoscope.analyses.attention import patterns
from mnemoscope.analyses.roles import ablate_by_role, last_roles
from mnemoscope.analyses.stacking import along_seed, over_runs, over_steps
from mnemoscope.core.errors import InputError
from mnemoscope.models.run import Run, create_run
from mnemoscope.run.executor import analyse_many
from tests.support import seeded, small_spec

TASK = small_spec("v3").task
BATCH = TASK.monitor(40, split="test", generator=seeded(0))


@torch.no_grad()
def accuracy(model) -> xr.DataArray:
    right = model(BATCH.inputs).argmax(-1) == BATCH.targets
    values = [float(right[mask].double().mean()) for mask in TASK.skills(BATCH).values()]
    skills = list(TASK.skills(BATCH))
    return xr.DataArray(values, dims="skill", coords={"skill": skills}, name="accuracy", attrs={"n": 40})


def attention_to_self(model) -> xr.Dataset:
    share = patterns(model, BATCH).diagonal(dim1=-2, dim2=-1).mean((0, -1))
    coords = {"layer": range(len(share)), "head": range(share.shape[1])}
    return xr.Dataset({"share": (("layer", "head"), share.numpy())}, coords, attrs={"unit": "share of attention"})


def curve(run: Run) -> xr.DataArray:
    return over_steps(run, accuracy, steps=[0, 30])


def test_every_checkpoint_as_by_hand(tiny):
    result = over_steps(tiny, accuracy)
    assert result.dims == ("step", "skill")
    assert result.step.values.tolist() == list(tiny.steps) == [0, 10, 30, 60]
    for step in tiny.steps:
        xr.testing.assert_identical(result.sel(step=step, drop=True), accuracy(tiny.model(step)))
    assert result.attrs == {"n": 40}
    assert len({tuple(row) for row in result.values.tolist()}) > 1  # training changed something


def test_chosen_steps_come_in_ascending_order_and_once(tiny):
    result = over_steps(tiny, accuracy, steps=[60, 0, 60])
    xr.testing.assert_identical(result, over_steps(tiny, accuracy).sel(step=[0, 60]))


def test_one_model_at_a_time(tiny, monkeypatch):
    seen, load = [], Run.hooked
    monkeypatch.setattr(Run, "hooked", lambda self, step, **kwargs: seen.append(step) or load(self, step, **kwargs))

    def analyse(model):
        seen.append("analysed")
        return accuracy(model)

    over_steps(tiny, analyse, steps=[0, 10])
    assert seen == [0, "analysed", 10, "analysed"]


def test_roles_are_those_of_the_last_checkpoint_at_every_step(tiny):
    named = last_roles(tiny, n=100)
    result = over_steps(tiny, attention_to_self, name_heads=partial(last_roles, n=100))
    by_head = over_steps(tiny, attention_to_self)
    for component, role in named.items():
        if "H" in component:
            head = by_head.share.isel(layer=int(component[1]), head=int(component[3]))
            assert result.share.sel(role=role).values.tolist() == head.values.tolist()
    assert result.component.dims == ("role",)  # the same head at every step


def test_the_roles_are_those_that_ablation_finds(tiny):
    expected = ablate_by_role(tiny.model(), tiny.spec.task, n=100, seed=tiny.spec.seed)
    found = dict(zip(expected.component.values.tolist(), expected.role.values.tolist(), strict=True))
    assert last_roles(tiny, n=100) == found


@pytest.mark.parametrize(
    ("steps", "message"), [([0, 20], "must be one of: 0, 10, 30, 60; got 20"), ([], "at least one")]
)
def test_steps_that_do_not_exist_are_refused_before_any_work(tiny, steps, message):
    def never(model):
        raise AssertionError

    with pytest.raises(InputError, match=message):
        over_steps(tiny, never, steps=steps)


def test_a_run_without_checkpoints_is_refused(tmp_path):
    with pytest.raises(InputError, match="no checkpoint yet"):
        over_steps(create_run(tmp_path / "run", small_spec("v3")), accuracy)


def test_runs_one_by_one_and_by_several_processes(tiny, tmp_path):
    """Two seeds: the second is a copy of the first under another seed's name."""
    other = create_run(tmp_path / "other", small_spec("v3", seed=1))
    (tmp_path / "other" / "checkpoints").mkdir()
    for source, target in ((60, 0), (0, 30)):
        other.checkpoint_path(target).write_bytes(tiny.checkpoint_path(source).read_bytes())
    result = over_runs([tiny, other], curve)
    assert (result.dims, result.seed.values.tolist()) == (("seed", "step", "skill"), [0, 1])
    xr.testing.assert_equal(result.sel(seed=1, step=0, drop=True), accuracy(tiny.model(60)))
    xr.testing.assert_identical(along_seed([tiny, other], analyse_many([tiny, other], curve)), result)


def test_metrics_of_runs(tiny):
    result = along_seed([tiny], [tiny.metrics()])
    assert result.test_loss.dims == ("seed", "step")
    xr.testing.assert_equal(result.isel(seed=0, drop=True), tiny.metrics())
