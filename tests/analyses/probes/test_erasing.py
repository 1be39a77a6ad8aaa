import pytest
import torch

from mnemoscope.analyses.probes import erase, subspace, with_latent
from mnemoscope.analyses.probes.editing import activations, displaced, turned
from mnemoscope.core.errors import InputError
from mnemoscope.core.intervention import Add, Project
from mnemoscope.core.metrics import cross_entropy
from mnemoscope.core.named import Named
from mnemoscope.core.site import Site
from mnemoscope.interventions.run import run_with
from mnemoscope.models.constructed import induction, induction_batch
from mnemoscope.systems.tiny_recall.constructed import dissociated, two_layer_recall
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import foreign_model, global_generators_untouched, random_model, reads_back, seeded

TASK = PermutationLookup(repeat_ratio=0.5, split_seed=0)
FIT = TASK.sample(300, split="train", generator=seeded(1))
TEST = TASK.sample(100, split="test", generator=seeded(2))
SKILLS = TASK.skills(TEST)
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
    found = subspace(model, FIT, "token", site=site, method="means", n_shuffles=1)
    result = erase(model, TEST, found, skills=SKILLS, n_random=1)
    basis = Named(name="token", value=found.basis)
    mean = Named(name="mean", value=found.inside(found.centre))
    logits = run_with(model, TEST, [Project(site=site, basis=basis, part="remove"), Add(site=site, direction=mean)])
    for skill, mask in SKILLS.items():
        for name, of in (("log_prob", logits), ("clean_log_prob", model(TEST.inputs).detach())):
            expected = -cross_entropy(of, TEST.targets)[mask].mean()
            assert result[name].sel(skill=skill).item() == pytest.approx(float(expected), abs=1e-5)
    assert abs(result.log_prob - result.clean_log_prob).sel(skill="recall") > 1e-5


def test_recall_goes_with_what_its_head_carries_and_elimination_stays():
    """The head of layer 1 copies the answer: a robust circuit, which random directions do not disturb."""
    model, site = two_layer_recall(), Site(kind="result", layer=1, head=1, pos=-1)
    found = subspace(model, FIT, "recalled", site=site, n_shuffles=1)
    result = erase(model, TEST, found, skills=SKILLS, n_random=8)
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
    found = subspace(dissociated(), FIT, "is_repeat", site=site, method="means")
    result = erase(dissociated(), TEST, found, skills=SKILLS, n_random=1)
    for skill in SKILLS:
        draws = result.shuffled_accuracy.sel(skill=skill)
        assert draws.min() - 0.1 <= result.accuracy.sel(skill=skill) <= 1


def test_the_control_is_as_long_as_the_displacement():
    model, site = random_model(), SITES[0]
    found = subspace(model, FIT, "source_slot", site=site)

    move = found.inside(found.centre - activations(model, TEST, found))
    for draw in turned(found, move, 5, seed=0):
        torch.testing.assert_close(draw.norm(dim=-1), move.norm(dim=-1))
        assert torch.linalg.matrix_rank(draw[:, -1], atol=1e-8) == len(found.basis)
        assert not torch.allclose(draw, move)


def test_what_is_at_other_places_stays_as_it_is():
    model = random_model()
    found = subspace(model, FIT, "token", site=Site(kind="resid_pre", layer=0, pos=4), n_shuffles=1)

    move = torch.ones_like(activations(model, TEST, found))
    clean, moved = model(TEST.inputs), displaced(model, TEST, found.site, move)
    assert torch.equal(clean[:, :4], moved[:, :4])
    assert not torch.equal(clean[:, 4:], moved[:, 4:])
    assert torch.equal(model(TEST.inputs), clean)


def test_the_seed_decides_and_results_can_be_saved(tmp_path):
    model, site = foreign_model(), Site(kind="resid_post", layer=0)
    found = subspace(model, FIT, "token", site=site, n_shuffles=2)
    with global_generators_untouched():
        one = erase(model, TEST, found, skills=SKILLS, n_random=2, seed=1)
    assert one.identical(erase(model, TEST, found, skills=SKILLS, n_random=2, seed=1))
    assert not one.equals(erase(model, TEST, found, skills=SKILLS, n_random=2, seed=2))
    assert reads_back(one, tmp_path / "erased.nc")
    assert one.random_accuracy.sizes == {"draw": 2, "skill": 2}
    assert one.shuffled_accuracy.sizes == {"shuffle": 2, "skill": 2}


def test_what_does_not_fit_is_refused():
    found = subspace(random_model(), FIT, "is_repeat", site=SITES[0], n_shuffles=1)
    with pytest.raises(InputError, match="take the model that it was found in"):
        erase(random_model(d_model=16), TEST, found, skills=SKILLS)
    with pytest.raises(InputError, match="n_random must be"):
        erase(random_model(), TEST, found, skills=SKILLS, n_random=0)
    with pytest.raises(InputError, match="must have the shape"):
        erase(random_model(), FIT, found, skills=SKILLS)
