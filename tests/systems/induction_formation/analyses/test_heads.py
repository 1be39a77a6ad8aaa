"""Heads, wiring, subcircuits and what is tracked, on models whose circuit is known."""

from functools import cache

import numpy as np
import pytest

from mnemoscope import Mean, Named, PromptPairs, Site, preset, run_with
from mnemoscope.models.building import build_untrained
from mnemoscope.systems.induction_formation.analyses.heads import heads_alone, scores, strengths
from mnemoscope.systems.induction_formation.analyses.subcircuits import progress
from mnemoscope.systems.induction_formation.analyses.tracking import trajectory
from mnemoscope.systems.induction_formation.analyses.wiring import effective_number, wiring
from mnemoscope.systems.induction_formation.constructed import copier, induction
from mnemoscope.systems.induction_formation.tasks import FewShot
from tests.support import perturbed, seeded

TASK = FewShot(n_classes=6, n_labels=4).for_seed(0)


@cache
def built(name):
    sizes = {"one": (1, 1), "many": (3, 2)}
    if name == "copier":
        return copier(TASK, n_heads=4)
    return induction(TASK, n_previous=sizes[name][0], n_induction=sizes[name][1], n_heads=4)


@cache
def batch():
    return TASK.sample(200, split="test", generator=seeded())


def test_strengths_are_those_that_were_set():
    found = strengths(built("many"), batch())
    np.testing.assert_allclose(found.induction.values, [1, 1, 0, 0], atol=1e-3)
    np.testing.assert_allclose(found.previous.values, [1, 1, 1, (1 / 2 + 1 / 4) / 2], atol=1e-3)
    np.testing.assert_allclose(strengths(built("copier"), batch()).induction.values, [0] * 4, atol=1e-3)


def test_one_head_is_needed_and_of_two_none():
    one, many = (heads_alone(built(name), batch()) for name in ("one", "many"))
    assert one.accuracy.sel(kept="alone", head="L1H0") == many.accuracy.sel(kept="alone", head="L1H1") == 1
    assert one.accuracy.sel(kept="without", head="L1H0") == one.none_accuracy < 0.6
    assert (many.accuracy.sel(kept="without") == 1).all()
    assert float(many.additive) == pytest.approx(1, abs=1e-4)
    np.testing.assert_allclose(many.difference.sel(kept="alone").values, [10, 10, 0, 0], atol=1.5)


@pytest.mark.parametrize(("kept", "head"), [("alone", 1), ("without", 2)])
def test_heads_are_kept_as_by_hooks(kept, head):
    changes = {"task.n_classes": 6, "task.n_labels": 4}
    model = perturbed(build_untrained(preset("formation", "quick", changes=changes)))
    removed = [each for each in range(8) if (each == head) == (kept == "without")]
    source = Named(name="all", value=batch())
    means = [Mean(site=Site(kind="z", layer=1, head=each), source=source) for each in removed]
    expected = scores(run_with(model, batch(), means)[:, -1], batch())
    found = heads_alone(model, batch()).sel(kept=kept, head=f"L1H{head}")
    assert {name: float(found[name]) for name in expected} == pytest.approx(expected, abs=1e-6)


def test_wiring_counts_heads_at_either_end():
    pairs = PromptPairs.from_task(TASK, batch(), kind="swap_exemplars")
    for name, (n_previous, n_induction) in {"one": (1, 1), "many": (3, 2)}.items():
        found = wiring(built(name), pairs)
        expected = np.zeros((4, 4))
        expected[:n_previous, :n_induction] = 1 / n_previous
        np.testing.assert_allclose(found.share.values, expected, atol=1e-3)
        assert float(found.n_previous) == pytest.approx(n_previous, abs=1e-3)
        assert float(found.n_induction) == pytest.approx(n_induction, abs=1e-3)
    nothing = wiring(built("copier"), pairs)
    assert not nothing.share.values.any()
    assert nothing.n_previous == nothing.n_induction == 0


def test_the_effective_number_is_weighted_by_what_is_carried():
    carried = np.array([[1.0, 0.0], [1.0, 2.0]])
    assert effective_number(carried, axis=0) == pytest.approx((2 * 2 + 2 * 1) / 4)
    assert effective_number(carried, axis=1) == pytest.approx((1 * 1 + 3 * 9 / 5) / 4)


def test_subcircuits_that_are_there_have_come_all_the_way():
    np.testing.assert_allclose(progress(built("many"), batch()).values, [1, 1, 1], atol=1e-3)
    np.testing.assert_allclose(progress(built("copier"), batch()).values, [1, 0, 0], atol=1e-3)


def test_all_of_it_is_tracked():
    found = trajectory(built("many"), TASK, seed=1, n=64)
    heads = [f"{name}_L1H{head}" for name in ("strength", "alone", "without") for head in range(4)]
    assert set(found.data_vars) == {"loss", "accuracy", "previous", "copy", "routing", "match", *heads}
    assert all(not values.dims for values in found.data_vars.values())
    assert float(found.accuracy) == float(found.without_L1H0) == 1
