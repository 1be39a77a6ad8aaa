"""Patterns of costs by hand."""

import numpy as np
import pytest
import xarray as xr

from mnemoscope.analyses.ablation import ablate
from mnemoscope.analyses.dissociation_tables import dissociation, dissociation_margins
from mnemoscope.core.errors import InputError
from tests.support import random_model, seeded, small_spec


def table(accuracy: dict, error: float = 0.01, clean=(1.0, 1.0)) -> xr.Dataset:
    """An ablation of components with the accuracy left of elimination and of recall."""
    cells = [[list(row) for row in accuracy.values()]]
    return xr.Dataset(
        {
            "accuracy": (("kind", "component", "skill"), cells),
            "accuracy_error": (("kind", "component", "skill"), [[[error] * 2] * len(accuracy)]),
            "clean_accuracy": ("skill", list(clean)),
        },
        coords={"kind": ["mean"], "component": list(accuracy), "skill": ["elimination", "recall"]},
    )


def judged(ablation: xr.Dataset, **arguments) -> xr.Dataset:
    return dissociation(ablation, **{"kind": "mean", **arguments})


@pytest.mark.parametrize(
    ("accuracy", "outcome"),
    [
        ({"a": (0.2, 1.0), "b": (0.99, 0.2)}, "double"),
        ({"a": (0.2, 0.1), "b": (0.99, 0.2)}, "single"),
        ({"a": (0.2, 0.1), "b": (0.2, 0.2)}, "none"),
        ({"a": (0.9, 0.95), "b": (1.0, 1.0)}, "none"),
        ({"a": (0.2, 1.0), "b": (0.76, 0.2)}, "undecided"),  # a drop of .24 +- .02: it may cost elimination too
        ({"a": (0.2, 1.0), "b": (0.76, 0.2), "c": (1.0, 0.3)}, "double"),  # b does not matter then
        ({"a": (0.2, 0.5), "b": (0.76, 0.76)}, "undecided"),
    ],
)
def test_single_double_or_none(accuracy, outcome):
    result = judged(table(accuracy))
    assert result.outcome.sel(skill="elimination", other_skill="recall").item() == outcome
    assert result.outcome.sel(skill="recall", other_skill="elimination").item() == outcome
    assert result.outcome.sel(skill="recall", other_skill="recall").item() == ""


def test_cells_are_judged_by_their_interval():
    result = judged(table({"a": (0.7, 0.76), "b": (0.8, 1.0)}, error=0.02))
    assert result.effect.sel(component="a").values.tolist() == ["costs", "undecided"]
    assert result.effect.sel(component="b").values.tolist() == ["spares", "spares"]
    assert result.lost.sel(component="a").values.tolist() == pytest.approx([0.3, 0.24])
    everywhere = judged(table({"a": (0.7, 0.75)}, error=0.02), margin=0.2)
    assert everywhere.effect.values.ravel().tolist() == ["costs", "costs"]


def test_a_skill_that_was_not_learned_is_not_judged():
    result = judged(table({"a": (0.2, 0.2), "b": (0.9, 0.1)}, clean=(1.0, 0.3)))
    assert result.outcome.sel(skill="elimination", other_skill="recall").item() == "not learned"


def test_an_untrained_model_is_not_read_as_anything():
    task = small_spec().task
    batch = task.monitor(100, split="test", generator=seeded())
    result = ablate(random_model(), batch, skills=task.skills(batch), reference=batch)
    outcome = dissociation(result).outcome.sel(skill="elimination", other_skill="recall")
    assert outcome.kind.values.tolist() == ["zero", "mean", "resample"]
    assert (outcome == "not learned").all()


def test_seeds_stay_apart():
    both = xr.concat(
        [table({"a": (0.2, 1.0), "b": (1.0, 0.2)}), table({"a": (0.2, 0.1), "b": (1.0, 0.2)})],
        xr.DataArray([3, 7], dims="seed", name="seed"),
    )
    outcome = judged(both).outcome.sel(skill="elimination", other_skill="recall")
    assert (outcome.sel(seed=3).item(), outcome.sel(seed=7).item()) == ("double", "single")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "zero"}, "kind must be one of: mean; got 'zero'"),
        ({"margin": 1.5}, "margin must be from 0 to 1; got 1.5"),
    ],
)
def test_wrong_arguments_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        judged(table({"a": (1.0, 1.0)}), **change)
    with pytest.raises(InputError, match="needs two skills"):
        judged(table({"a": (1.0, 1.0)}).sel(skill=["recall"]))


def costs(a, b):
    return xr.DataArray(np.array([a, b], dtype=float), dims=("component", "skill"), coords={"skill": ["s", "t"]})


def joint(s, t):
    return xr.DataArray([float(s), float(t)], dims="skill", coords={"skill": ["s", "t"]})


@pytest.mark.parametrize(
    ("a", "b", "both", "holds", "size"),
    [
        ((0.8, 0.0), (0.1, 0.9), (0.8, 0.9), "double", 0.15),  # min(.55, .25, .65, .15)
        ((0.1, 0.9), (0.8, 0.0), (0.8, 0.9), "double", 0.15),
        ((0.8, 0.7), (0.0, 0.9), (0.8, 0.9), "single", 0.25),  # min(.55, .45, .65, .25)
        ((0.8, 0.7), (0.9, 0.1), (0.8, 0.9), "single", 0.15),
        ((0.0, 0.9), (0.8, 0.7), (0.8, 0.9), "single", 0.25),
        ((0.8, 0.7), (0.4, 0.9), (0.8, 0.9), "both", 0.15),
        ((0.1, 0.0), (0.0, 0.2), (0.8, 0.5), "redundant", 0.05),
        ((0.1, 0.0), (0.0, 0.2), (0.8, 0.2), None, 0.0),
        ((0.8, 0.0), (0.8, 0.0), (0.8, 0.0), None, 0.0),
    ],
)
def test_by_hand(a, b, both, holds, size):
    found = dissociation_margins(costs(a, b), joint(*both))
    assert [name for name, value in found.items() if value > 0] == ([holds] if holds else [])
    if holds:
        assert found[holds] == pytest.approx(size)


def test_skills_are_matched_by_name():
    swapped = joint(0.5, 0.8)[::-1]
    found = dissociation_margins(costs((0.0, 0.0), (0.0, 0.0)), swapped)
    assert found == dissociation_margins(costs((0.0, 0.0), (0.0, 0.0)), joint(0.5, 0.8))


@pytest.mark.full
def test_at_most_one_pattern_holds():
    values = np.random.default_rng(0).uniform(0, 1, (500, 6))
    for *four, s, t in values:
        found = dissociation_margins(costs(four[:2], four[2:]), joint(s, t), margin=0.4)
        assert sum(value > 0 for value in found.values()) <= 1


def test_wrong_input_is_refused():
    with pytest.raises(InputError, match="two components and two skills"):
        dissociation_margins(costs((0, 0), (0, 0))[:1], joint(0, 0))
    with pytest.raises(InputError, match="margin must be from 0 to 1"):
        dissociation_margins(costs((0, 0), (0, 0)), joint(0, 0), margin=2)
