from dataclasses import replace
from typing import Any

import pytest
import torch
import xarray as xr

from mnemoscope.analyses.edits import (
    activations,
    draw_differing_sequences,
    edit,
    erase,
    random_displacements,
    run_displaced,
)
from mnemoscope.analyses.patching import effects
from mnemoscope.analyses.probe_rows import with_latent
from mnemoscope.analyses.subspaces import subspace
from mnemoscope.core.batch import Named
from mnemoscope.core.errors import InputError
from mnemoscope.core.intervention import Add, Patch, Project
from mnemoscope.core.metrics import ACCURACY, KL, LOGIT_DIFF, cross_entropy
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.site import Site
from mnemoscope.interventions.run import run_with
from mnemoscope.models.constructed import induction, induction_batch
from mnemoscope.systems.tiny_recall.constructed import dissociated, store_and_match, two_layer_recall
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.bridge import as_bridge
from tests.support import foreign_model, global_generators_untouched, random_model, reads_back, seeded

TASK = PermutationLookup(repeat_ratio=0.5, split_seed=0)
FIT = TASK.sample(400, split="train", generator=seeded(1))
TEST = TASK.sample(150, split="test", generator=seeded(2))
REPEATS = TEST.select(TEST.latents["is_repeat"])
MOVED = PromptPairs.from_task(TASK, REPEATS, kind="move_repeat").read_last()
MATCH = Site(kind="z", layer=0, head=1, pos=-1)
FULL = [Site(kind="z", layer=0, head=1), Site(kind="resid_mid", layer=0, pos=-1), Site(kind="k", layer=0, head=0)]


def any_two_repeats() -> PromptPairs:
    """Partners with another slot and another mapping; the answer should be the first one's own y of that slot."""
    other = REPEATS.select(draw_differing_sequences(REPEATS, "source_slot"))
    y = REPEATS.latents["y"].gather(1, other.latents["source_slot"][:, None] - 1)
    targets = other.targets.clone()
    targets[:, -1:] = y
    return PromptPairs(clean=REPEATS, corrupted=replace(other, targets=targets), name="partners").read_last()


@pytest.mark.parametrize("pairs", [MOVED, any_two_repeats()], ids=["minimal", "any"])
def test_the_answer_follows_the_slot_that_is_put_in_and_random_directions_do_nothing_of_the_kind(pairs):
    """Head 1 of `store_and_match` carries which slot is repeated and nothing else; the store stays the sequence's."""
    found = subspace(store_and_match(), FIT, "source_slot", site=MATCH, n_shuffles=5)
    result = edit(store_and_match(), pairs, found, n_random=5)
    foil = result.sel(metric="foil")
    assert foil.clean.mean() == 0
    assert (foil.value.sel(edit=["steer", "swap"]) == 1).all()
    assert (foil.patched == 1).all()
    assert foil.value.sel(edit="erase").mean() < 0.1
    assert (foil.random.mean(["draw", "prompt"]) < 0.2).all()
    assert foil.shuffled.sel(edit="steer").mean() < 0.1


def test_the_share_of_minimal_pairs_is_one():
    found = subspace(store_and_match(), FIT, "source_slot", site=MATCH, n_shuffles=1)
    ratio = effects(edit(store_and_match(), MOVED, found, n_random=1)).ratio.sel(
        metric="logit_diff", direction="noising"
    )
    assert ratio.sel(edit=["steer", "swap"]).values == pytest.approx([1, 1], abs=1e-3)
    assert ratio.sel(edit="erase") == pytest.approx(0.5, abs=0.05)


def test_the_store_does_not_follow_the_slot():
    """Head 0 carries the same on both prompts: nothing to steer by, nothing to swap."""
    found = subspace(store_and_match(), FIT, "source_slot", site=Site(kind="z", layer=0, head=0, pos=-1), n_shuffles=1)
    result = edit(store_and_match(), MOVED, found, edits=("swap",), n_random=1).sel(metric="foil", edit="swap")
    assert (result.value == 0).all()
    assert (result.patched == 0).all()


def test_the_recalled_value_is_swapped_where_it_is_written():
    pairs = PromptPairs.from_task(TASK, REPEATS, kind="exchange_answer").read_last()
    site = Site(kind="result", layer=1, head=1, pos=-1)
    found = subspace(two_layer_recall(), FIT, "recalled", site=site, n_shuffles=1)
    foil = edit(two_layer_recall(), pairs, found, n_random=5).sel(metric="foil")
    assert (foil.value.sel(edit=["steer", "swap"]) == 1).all()
    assert (foil.random.mean("prompt") < 0.5).all()


@pytest.mark.parametrize("site", FULL, ids=str)
def test_swapping_all_directions_is_patching(site):
    model, pairs = random_model(), MOVED
    found = subspace(model, FIT, "token", site=site, n_shuffles=1)
    width = found.basis.shape[1]
    whole = replace(found, basis=torch.eye(width).double(), reading=torch.eye(width).double())
    result = edit(model, pairs, whole, edits=("swap",), metrics=(LOGIT_DIFF,), n_random=1)
    logits = run_with(model, pairs.clean, [Patch(site=site, source=Named(name="other", value=pairs.corrupted))])
    expected = LOGIT_DIFF(logits, pairs.answer, pairs.foil, logits)[:, -1]
    torch.testing.assert_close(torch.from_numpy(result.value.values[0, 0, 0]), expected.double(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(torch.from_numpy(result.patched.values[0]), expected.double(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("method", ["means", "probe"])
def test_swapping_in_an_orthogonal_subspace_is_a_patch_inside_it(method):
    model, site = random_model(), Site(kind="resid_mid", layer=0, pos=-1)
    found = subspace(model, FIT, "source_slot", site=site, method=method, n_shuffles=1)
    result = edit(model, MOVED, found, edits=("swap",), metrics=(LOGIT_DIFF,), n_random=1)
    source, basis = Named(name="other", value=MOVED.corrupted), Named(name="slots", value=found.basis)
    logits = run_with(model, MOVED.clean, [Patch(site=site, source=source, basis=basis)])
    expected = LOGIT_DIFF(logits, MOVED.answer, MOVED.foil, logits)[:, -1].double()
    torch.testing.assert_close(torch.from_numpy(result.value.values[0, 0, 0]), expected, atol=1e-5, rtol=1e-5)


def test_steering_adds_the_difference_of_class_means():
    model, site = random_model(), Site(kind="resid_mid", layer=0, pos=-1)
    found = subspace(model, FIT, "source_slot", site=site, n_shuffles=1)
    x = model.run_with_cache(FIT.inputs)[1]["blocks.0.hook_resid_mid"][:, -1]
    slots = [batch.latents["source_slot"] for batch in (FIT, MOVED.clean, MOVED.corrupted)]
    rows = (slots[1] == 1) & (slots[2] == 3)
    pairs = MOVED.select(rows)
    step = Named(name="1 to 3", value=x[slots[0] == 3].mean(0) - x[slots[0] == 1].mean(0))
    logits = run_with(model, pairs.clean, [Add(site=site, direction=step)])
    expected = LOGIT_DIFF(logits, pairs.answer, pairs.foil, logits)[:, -1].double()
    result = edit(model, pairs, found, edits=("steer",), metrics=(LOGIT_DIFF,), n_random=1)
    assert rows.any()
    torch.testing.assert_close(torch.from_numpy(result.value.values[0, 0, 0]), expected, atol=1e-5, rtol=1e-5)


def test_clean_and_corrupted_are_the_models_own():
    model = random_model()
    found = subspace(model, FIT, "source_slot", site=MATCH, n_shuffles=2)
    with global_generators_untouched():
        result = edit(model, MOVED, found, metrics=(LOGIT_DIFF, KL), n_random=3)
    for side in ("clean", "corrupted"):
        logits = model(getattr(MOVED, side).inputs).detach()
        expected = LOGIT_DIFF(logits, MOVED.answer, MOVED.foil, logits)[:, -1].double()
        torch.testing.assert_close(torch.from_numpy(result[side].values[0]), expected, atol=1e-5, rtol=1e-5)
    assert abs(result.clean.sel(metric="kl")).max() < 1e-9
    assert result.random.sizes == {"direction": 1, "metric": 2, "edit": 3, "draw": 3, "prompt": len(MOVED)}
    assert result.shuffled.sizes["shuffle"] == 2


def test_an_untrained_model_gives_nothing_to_share_out():
    found = subspace(random_model(), FIT, "source_slot", site=MATCH, n_shuffles=1)
    with pytest.raises(InputError, match="no metric tells clean from corrupted"):
        effects(edit(random_model(), MOVED, found, n_random=1, metrics=(LOGIT_DIFF, ACCURACY)))


def test_results_can_be_saved(tmp_path):
    found = subspace(store_and_match(), FIT, "source_slot", site=MATCH, n_shuffles=1)
    result = edit(store_and_match(), MOVED, found, n_random=1)
    assert reads_back(result, tmp_path / "edited.nc")
    assert result.attrs["directions"] == "leace, rank 2"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"edits": ()}, "edits must name"),
        ({"edits": ("swap", "swap")}, "each once"),
        ({"metrics": ()}, "metrics must name"),
        ({"n_random": 0}, "n_random must be"),
    ],
)
def test_what_is_no_edit_is_refused(changes, words):
    found = subspace(random_model(), FIT, "source_slot", site=MATCH, n_shuffles=1)
    with pytest.raises(InputError, match=words):
        edit(random_model(), MOVED, found, **changes)


def test_steering_needs_classes_that_were_seen():
    model = random_model()
    found = subspace(model, FIT.select(FIT.latents["source_slot"] < 3), "source_slot", site=MATCH, n_shuffles=1)
    with pytest.raises(InputError, match="a class of source_slot to steer"):
        edit(model, MOVED, found, edits=("steer",), n_random=1)
    number = with_latent(FIT, "number", torch.rand(len(FIT), generator=seeded()))
    with pytest.raises(InputError, match="steering needs classes"):
        edit(model, MOVED, subspace(model, number, "number", site=MATCH, n_shuffles=1), edits=("steer",), n_random=1)


@pytest.mark.parametrize("site", [MATCH, FULL[1]], ids=str)
def test_a_bridge_gives_the_same(site):
    model = foreign_model(n_ctx=9)
    found = []
    models: list[Any] = [model, as_bridge(model)]
    for one in models:
        space = subspace(one, FIT, "source_slot", site=site, n_shuffles=1)
        found.append(edit(one, MOVED, space, n_random=1, metrics=(LOGIT_DIFF,)))
    xr.testing.assert_allclose(found[0].drop_attrs(), found[1].drop_attrs(), atol=1e-4)


FITTED = TASK.sample(300, split="train", generator=seeded(1))
HELD_OUT = TASK.sample(100, split="test", generator=seeded(2))
SKILLS = TASK.skills(HELD_OUT)
SITES = [
    Site(kind="z", layer=0, head=1, pos=-1),
    Site(kind="k", layer=0, head=0),
    Site(kind="result", layer=0, head=1, pos=(2, 8)),
    Site(kind="resid_pre", layer=0, pos="source_pos"),
    Site(kind="post", layer=0, pos=-1),
    Site(kind="embed"),
]


@pytest.mark.parametrize("site", SITES, ids=str)
def test_erasing_along_the_means_is_a_projection_and_the_mean_put_back(site):
    model = random_model()
    found = subspace(model, FITTED, "token", site=site, method="means", n_shuffles=1)
    result = erase(model, HELD_OUT, found, skills=SKILLS, n_random=1)
    basis = Named(name="token", value=found.basis)
    mean = Named(name="mean", value=found.inside(found.centre))
    logits = run_with(model, HELD_OUT, [Project(site=site, basis=basis, part="remove"), Add(site=site, direction=mean)])
    for skill, mask in SKILLS.items():
        for name, of in (("log_prob", logits), ("clean_log_prob", model(HELD_OUT.inputs).detach())):
            expected = -cross_entropy(of, HELD_OUT.targets)[mask].mean()
            assert result[name].sel(skill=skill).item() == pytest.approx(float(expected), abs=1e-5)
    assert abs(result.log_prob - result.clean_log_prob).sel(skill="recall") > 1e-5


def test_recall_goes_with_what_its_head_carries_and_elimination_stays():
    """The head of layer 1 copies the answer: a robust circuit, which random directions do not disturb."""
    model, site = two_layer_recall(), Site(kind="result", layer=1, head=1, pos=-1)
    found = subspace(model, FITTED, "recalled", site=site, n_shuffles=1)
    result = erase(model, HELD_OUT, found, skills=SKILLS, n_random=8)
    assert (result.clean_accuracy == 1).all()
    assert result.accuracy.sel(skill="recall") < 0.3
    assert result.accuracy.sel(skill="elimination") == 1
    assert result.random_accuracy.sel(skill="recall").mean() > 0.8


def test_induction_goes_with_the_token_before():
    batch = induction_batch(300, n_tokens=8, n_ctx=10, generator=seeded(1))
    before = batch.inputs.roll(1, 1)
    has_one = torch.arange(10).expand(before.shape) > 0
    batch = with_latent(with_latent(batch, "before", before), "has one", has_one)
    fit, test = batch.select(slice(0, 150)), batch.select(slice(150, 300))
    place = torch.zeros_like(test.scored)
    place[:, 5:9] = True
    site = Site(kind="resid_post", layer=0, pos=tuple(range(1, 10)))
    found = subspace(induction(8, 10), fit, "before", site=site, where="has one", n_shuffles=8)
    result = erase(induction(8, 10), test, found, skills={"induction": place}, n_random=8)
    assert result.clean_accuracy.item() == 1
    assert result.accuracy.item() < 0.5
    assert result.random_accuracy.mean() > result.accuracy.item() + 0.3
    assert result.shuffled_accuracy.mean() > result.accuracy.item() + 0.3


def test_where_the_latent_is_not_erasing_costs_as_much_as_with_permuted_labels():
    """Head 0 of `dissociated` knows nothing of repeats."""
    site = Site(kind="z", layer=0, head=0, pos=-1)
    found = subspace(dissociated(), FITTED, "is_repeat", site=site, method="means")
    result = erase(dissociated(), HELD_OUT, found, skills=SKILLS, n_random=1)
    for skill in SKILLS:
        draws = result.shuffled_accuracy.sel(skill=skill)
        assert draws.min() - 0.1 <= result.accuracy.sel(skill=skill) <= 1


def test_the_control_is_as_long_as_the_displacement():
    model, site = random_model(), SITES[0]
    found = subspace(model, FITTED, "source_slot", site=site)

    move = found.inside(found.centre - activations(model, HELD_OUT, found))
    for draw in random_displacements(found, move, 5, seed=0):
        torch.testing.assert_close(draw.norm(dim=-1), move.norm(dim=-1))
        assert torch.linalg.matrix_rank(draw[:, -1], atol=1e-8) == len(found.basis)
        assert not torch.allclose(draw, move)


def test_what_is_at_other_places_stays_as_it_is():
    model = random_model()
    found = subspace(model, FITTED, "token", site=Site(kind="resid_pre", layer=0, pos=4), n_shuffles=1)

    move = torch.ones_like(activations(model, HELD_OUT, found))
    everywhere = torch.ones_like(HELD_OUT.scored)
    clean = model(HELD_OUT.inputs)
    moved = run_displaced(model, HELD_OUT, found.site, move, everywhere, lambda logits, _: {"logits": logits})["logits"]
    assert torch.equal(clean[:, :4], moved[:, :4])
    assert not torch.equal(clean[:, 4:], moved[:, 4:])
    assert torch.equal(model(HELD_OUT.inputs), clean)


def test_the_seed_decides_and_results_can_be_saved(tmp_path):
    model, site = foreign_model(), Site(kind="resid_post", layer=0)
    found = subspace(model, FITTED, "token", site=site, n_shuffles=2)
    with global_generators_untouched():
        one = erase(model, HELD_OUT, found, skills=SKILLS, n_random=2, seed=1)
    assert one.identical(erase(model, HELD_OUT, found, skills=SKILLS, n_random=2, seed=1))
    assert not one.equals(erase(model, HELD_OUT, found, skills=SKILLS, n_random=2, seed=2))
    assert reads_back(one, tmp_path / "erased.nc")
    assert one.random_accuracy.sizes == {"draw": 2, "skill": 2}
    assert one.shuffled_accuracy.sizes == {"shuffle": 2, "skill": 2}


def test_what_does_not_fit_is_refused():
    found = subspace(random_model(), FITTED, "is_repeat", site=SITES[0], n_shuffles=1)
    with pytest.raises(InputError, match="take the model that it was found in"):
        erase(random_model(d_model=16), HELD_OUT, found, skills=SKILLS)
    with pytest.raises(InputError, match="n_random must be"):
        erase(random_model(), HELD_OUT, found, skills=SKILLS, n_random=0)
    with pytest.raises(InputError, match="must have the shape"):
        erase(random_model(), FITTED, found, skills=SKILLS)
