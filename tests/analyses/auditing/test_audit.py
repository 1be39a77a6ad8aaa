import numpy as np
import pytest
import xarray as xr

import mnemoscope as ms
from mnemoscope.systems.tiny_recall.constructed import dissociated
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.analyses.auditing.planted import by_cell, null_effects
from tests.support import random_model

PARTS = [f"{at}{name}" for at in ("", "held_out_") for name in ("effect", "low", "high", "p", "q")]


@pytest.fixture(scope="module")
def pairs():
    task = PermutationLookup(repeat_ratio=0.3).for_seed(0)
    batch = task.monitor(60, split="test", generator=ms.generator(0, "prompts"))
    return ms.PromptPairs.from_task(task, batch, kind="toggle_repeat", skill="recall").read_last()


@pytest.fixture(scope="module")
def values(pairs):
    return ms.patch(dissociated(), pairs, kind="z", over=("layer", "head"))


def planted(seed=0, *, size=1.0, n=64, cells=(3, 7)):
    effects = null_effects(np.random.default_rng(seed), n=n)
    effects[list(cells)] += size
    return by_cell(effects)


def test_the_head_that_carries_the_answer_is_found_and_confirmed(values):
    audit = ms.audit(values)
    noising = audit.sel(direction="noising", metric="logit_diff", layer=0)
    assert noising.found.values.tolist() == [False, True]
    assert noising.confirmed.values.tolist() == [False, True]
    assert not audit.sel(direction="denoising").found.any()
    assert float(noising.held_out_effect.sel(head=1)) == pytest.approx(float(audit.held_out_whole[0]), rel=0.05)
    assert {*PARTS, "found", "confirmed", "whole", "held_out_whole"} == set(audit.data_vars)
    assert audit.attrs["null"].startswith("effects are symmetric about 0 over clusters of prompts")
    assert audit.attrs["n_tests"] == 4


@pytest.mark.parametrize("measure", [ms.patch_edges, ms.analyses.attribute_edges, ms.analyses.integrate_edges])
def test_edges_and_their_estimates_are_audited(measure, pairs):
    found = measure(dissociated(), pairs)
    assert ms.audit(found).found.dims == ("direction", "metric", "edge")
    assert ms.audit(found).attrs["n_tests"] == 2 * found.sizes["edge"]


def test_what_is_planted_is_found_with_its_size_and_nothing_else():
    audit = ms.audit(planted())
    assert np.flatnonzero(audit.found).tolist() == [3, 7]
    assert np.flatnonzero(audit.confirmed).tolist() == [3, 7]
    left = audit.isel(component=[3, 7])
    assert (left.held_out_low < 1).all()
    assert (left.held_out_high > 1).all()
    assert audit.held_out_q.notnull().values.tolist() == audit.found.values.tolist()
    assert (audit.p > 0).all()


def test_parts_share_no_cluster_and_are_the_same_for_a_seed():
    effects = planted(n=60).assign_coords(cluster=("prompt", np.arange(60) // 4))
    audit = ms.audit(effects)
    assert (audit.attrs["n_clusters"], audit.attrs["n_held_out_clusters"]) == (7, 8)
    assert audit.attrs["n_prompts"] + audit.attrs["n_held_out_prompts"] == 60
    assert audit.identical(ms.audit(effects))
    assert not audit.effect.equals(ms.audit(effects, seed=1).effect)
    assert ms.audit(effects, clusters=np.arange(60) // 4).effect.equals(audit.effect)
    assert ms.audit(effects, clusters="cluster").effect.equals(audit.effect)


def test_a_cluster_counts_once_however_often_it_is_asked():
    effects = by_cell(np.repeat(planted(n=24).values, 5, axis=1))
    once, copied = ms.audit(planted(n=24)), ms.audit(effects, clusters=np.repeat(np.arange(24), 5))
    xr.testing.assert_allclose(once[PARTS].drop_vars("cluster", errors="ignore"), copied[PARTS])


def test_few_clusters_are_refused_and_what_they_cannot_show_is_said():
    with pytest.raises(
        ms.InputError, match=r"at least 6 clusters of prompts that choose.*no p below 0.062; got 5 of 10"
    ):
        ms.audit(planted(n=10))
    audit = ms.audit(planted(n=12, size=9.0))
    assert float(audit.p.min()) == 2.0**-5
    assert audit.attrs["least_q"] == 1.0
    assert ms.audit(planted(n=12), held_out=0.0).attrs["n_held_out_prompts"] == 0


def test_without_a_part_held_out_nothing_is_confirmed():
    audit = ms.audit(planted(), held_out=0.0)
    assert np.flatnonzero(audit.found).tolist() == [3, 7]
    assert not audit.confirmed.any()
    assert audit.held_out_effect.isnull().all()


def test_q_values_are_over_all_results_of_a_model():
    audits = ms.analyses.audit_together({"one": planted(size=0.5), "other": planted(1, size=0.5)})
    assert {each.attrs["n_tests"] for each in audits.values()} == {96}
    alone = ms.audit(planted(size=0.5))
    assert (audits["one"].p == alone.p).all()
    assert (ms.audit(planted(size=0.5), adjust="by").q >= alone.q).all()


def test_a_difference_from_another_model_is_audited_prompt_by_prompt(values, pairs):
    same = ms.audit(values, against=values)
    assert (same.p == 1).all()
    untrained = ms.patch(random_model(), pairs, kind="z", over=("layer", "head"))
    assert ms.audit(values, against=untrained).found.sel(direction="noising", head=1).all()


def test_the_null_of_controls_ranks_an_effect_among_theirs():
    controls = [by_cell(null_effects(np.random.default_rng(10 + i), n=64)) for i in range(19)]
    audit = ms.audit(planted(size=2.0), against=controls)
    assert audit.attrs["null"] == "the effect is one of those of 19 controls"
    assert audit.p.isel(component=[3, 7]).values.tolist() == [0.05, 0.05]
    assert float(audit.p.median()) > 0.2


def test_the_null_of_heads_is_that_of_the_layer():
    rng = np.random.default_rng(0)
    effects = rng.normal(1.0, 0.2, (2, 8, 40))
    effects[0, 5] += 1
    dims = {"dims": ("layer", "head", "prompt"), "coords": {"layer": [0, 1], "head": range(8)}}
    audit = ms.audit(xr.DataArray(effects, **dims), null="heads")
    assert np.argwhere(audit.found.values).tolist() == [[0, 5]]
    assert ms.audit(xr.DataArray(effects, **dims)).found.all()  # every effect is far from 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"null": "sings"}, "null must be one of: signs, heads, labels, controls; got 'sings'; the nearest: signs"),
        ({"null": "labels"}, "null must be heads or signs for these effects; got 'labels'"),
        ({"null": "heads"}, "the null heads needs effects over layer and head; these are over component"),
        ({"null": "controls"}, "null must be heads or signs for these effects; got 'controls'"),
        ({"adjust": "holm"}, "adjust must be one of: bh, by"),
        ({"rate": 0}, "rate must be from 1e-06 to 0.5"),
        ({"held_out": 1}, "held_out must be from 0 to 0.9"),
        ({"n_draws": 10}, "n_draws must be at least 99"),
        ({"clusters": "subject"}, "clusters must be one of: prompt; got 'subject'"),
        ({"clusters": [1, 2]}, "clusters must give one label for each of 64 prompts"),
        ({"measure": "loss"}, "measure must be one of: effect; got 'loss'"),
    ],
)
def test_wrong_options_are_refused_in_one_line(options, said):
    effects = planted().assign_coords(prompt=range(64))
    with pytest.raises(ms.InputError) as refusal:
        ms.audit(effects, **options)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_result_without_prompts_is_refused_with_the_way_out(values):
    with pytest.raises(ms.InputError, match=r"an audit needs the effect on every prompt.*per_prompt=True"):
        ms.audit(ms.analyses.effects(values).ratio)
    with pytest.raises(ms.InputError, match="an audit needs the effect on every prompt"):
        ms.audit(values.mean("prompt"))


def test_a_comparison_with_other_cells_is_refused(values):
    with pytest.raises(ms.InputError, match="against must be over the same head as the result"):
        ms.audit(values, against=values.isel(head=[0]))
    with pytest.raises(ms.InputError, match="against must be over the same prompt as the result"):
        ms.audit(values, against=values.isel(prompt=range(20)))
