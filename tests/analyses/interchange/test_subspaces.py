"""Subspaces are found where they were planted, and arbitrary answers are not."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.linalg import subspace_angles

from mnemoscope.analyses.alignment import alignment_search, learn_subspace, random_subspaces, site_width
from mnemoscope.analyses.interchange import (
    SubspacePlace,
    arbitrary_answers,
    counterfactuals,
    interchange_accuracy,
    interchange_scores,
    random_pairs,
    run_interchange,
    split_pairs,
)
from mnemoscope.core.batch import Named
from mnemoscope.core.causal import CausalModel
from mnemoscope.core.errors import InputError
from mnemoscope.core.site import Site
from mnemoscope.interventions.recordings import Recordings
from mnemoscope.systems.tiny_recall.constructed import elimination_only, elimination_only_circuit
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import foreign_model, global_generators_untouched, random_model, reads_back, seeded

TASK = PermutationLookup(repeat_ratio=0.3).for_seed(0)
FIT, TEST = (random_pairs(TASK.monitor(256, split=split, generator=seeded()), 512) for split in ("train", "test"))
SITE = Site(kind="resid_post", layer=0, pos=-1)
FAST = {"n_steps": 150, "learning_rate": 0.1}
MARGIN = 3.0
ELIMINATE = CausalModel(
    name="eliminate",
    variables={"used": lambda known: torch.nn.functional.one_hot(known["y"][:, :-1], 6).any(1)},
    answer=lambda known: (torch.tensor([-100.0] + [0.0] * 5) - MARGIN * known["used"]).double().softmax(1),
)
"""What `elimination_only` answers in the last slot, as probabilities."""
ROTATION = torch.linalg.qr(torch.randn(22, 22, generator=seeded(7))).Q


def planted():
    """`elimination_only` with the residual stream turned, and the directions in which it writes what is used."""
    model = elimination_only(margin=MARGIN)
    attention = model.blocks[0].attn
    with torch.no_grad():
        for weight in (model.embed.W_E, model.pos_embed.W_pos, attention.W_O):
            weight.copy_(weight @ ROTATION)
        for weight in (attention.W_Q, attention.W_K, attention.W_V, model.unembed.W_U):
            weight.copy_(ROTATION.T @ weight)
    answers = ROTATION[elimination_only_circuit().dims["answer"]][1:]
    return model, answers - answers.mean(0)  # the softmax does not see their sum


@pytest.mark.full
def test_a_planted_subspace_is_found():
    model, directions = planted()
    assert model.cfg.d_model == 22
    wanted = counterfactuals(ELIMINATE, FIT, "used", 6)
    span = np.linalg.svd(directions.detach().numpy())[2][:4]
    longer = {**FAST, "n_steps": 250}
    with global_generators_untouched():
        bases = [learn_subspace(model, wanted, SITE, 4, seed=seed, **longer) for seed in (0, 1)]
        again = [learn_subspace(model, wanted, SITE, 4, n_steps=3) for _ in range(2)]
    assert torch.equal(*again)
    assert not torch.allclose(bases[0], bases[1])
    for basis in bases:
        torch.testing.assert_close(basis @ basis.T, torch.eye(4, dtype=torch.double))
        assert np.degrees(subspace_angles(basis.T.numpy(), span.T)).max() < 8  # two random ones: 80
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.thorough  # the whole search, of which the other tests prove the parts
def test_a_search_beside_its_controls(tmp_path):
    model, _ = planted()
    with global_generators_untouched():
        found = alignment_search(
            model, ELIMINATE, "used", site=SITE, k=4, fit=FIT, test=TEST, n_starts=2, n_random=10, **FAST
        )
    learned = found.iia.sel(answers="causal model")
    assert dict(found.iia.sizes) == {"answers": 2, "start": 2, "prompts": 2, "over": 3}
    assert (learned > 0.99).all()
    assert (found.mass.sel(answers="causal model", over="changing") > 0.55).all()  # 1 / (1 + 4 exp(-3)) = .83
    assert (found.kl.sel(answers="causal model") < 0.01).all()
    assert (found.iia.sel(answers="arbitrary", over="changing") < 0.2).all()
    assert found.random_iia.sel(over="changing").mean() < 0.3
    assert found.random_iia.sizes["draw"] == 10
    assert (found.whole_iia == 1).all()
    assert (found.before_iia.sel(over="changing") == 0).all()
    assert found.basis.shape == (2, 2, 4, 22)
    assert reads_back(found, tmp_path / "result.nc")


def reached(model, wanted, site, k, *, tested=None):
    """Accuracy on changing pairs inside a subspace learned for them, or on others."""
    basis, tested = learn_subspace(model, wanted, site, k, **FAST), tested or wanted
    part = SubspacePlace(site=site, basis=Named(name="learned", value=basis))
    pairs = split_pairs(tested.pairs, len(tested.pairs))
    logits = run_interchange(model, wanted.causal, pairs, [part], Recordings(model))
    return float(interchange_scores(logits, tested)[0, 1])


@pytest.mark.full
def test_too_few_dimensions_do_not_carry_it_and_an_untrained_model_has_none():
    wanted, tested = (counterfactuals(ELIMINATE, pairs, "used", 6) for pairs in (FIT, TEST))
    assert reached(planted()[0], wanted, SITE, 1, tested=tested) < 0.7
    assert reached(random_model(d_model=22, normalization="none"), wanted, SITE, 4, tested=tested) < 0.4


@pytest.mark.thorough
def test_a_large_subspace_says_anything_about_a_few_pairs():
    """The control can succeed: where it does, the search is to be thanked and not the network."""
    model = foreign_model(n_layers=1, d_model=64, d_head=32, d_vocab=6, n_ctx=9, act_fn="relu")
    (other,) = arbitrary_answers([counterfactuals(ELIMINATE, FIT.select(slice(12)), "used", 6)])
    small, large = (reached(model, other, Site(kind="resid_mid", layer=0, pos=-1), k) for k in (1, 32))
    assert small < 0.5
    assert large > 0.7


def test_random_subspaces_are_even_and_belong_to_a_seed():
    model = elimination_only()
    places = random_subspaces(model, SITE, 3, n=400)
    bases = torch.stack([place[0].basis.value for place in places.values()])
    torch.testing.assert_close(bases @ bases.mT, torch.eye(3, dtype=torch.double).expand(400, 3, 3))
    mean = (bases.mT @ bases).mean(0)
    torch.testing.assert_close(mean, 3 / 22 * torch.eye(22, dtype=torch.double), atol=0.03, rtol=0)
    again, other = (random_subspaces(model, SITE, 3, n=1, seed=seed)["random 0"] for seed in (0, 1))
    assert again == places["random 0"] != other
    found = interchange_accuracy(model, ELIMINATE, TEST, places=random_subspaces(model, SITE, 22, n=2))
    assert (found.iia.sel(over="changing") == 1).all()  # the whole site


@pytest.mark.parametrize(
    ("kind", "expected"), [("z", 3), ("q", 3), ("resid_pre", 8), ("result", 8), ("mlp_out", 8), ("post", 32)]
)
def test_the_width_of_a_site(kind, expected):
    assert site_width(foreign_model(d_mlp=32), Site(kind=kind, layer=0)) == expected


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 0}, "k, the dimensions of a subspace must be from 1 to 22; got 0"),
        ({"k": 23}, "k, the dimensions of a subspace must be from 1 to 22; got 23"),
        ({"site": Site(kind="pattern", layer=0)}, "a subspace needs a site that holds whole vectors; got L0 pattern"),
        ({"site": Site(kind="resid_post", layer=1)}, "the layer of site L1 resid_post must be 0"),
        ({"variable": "colour"}, "variable must be one of: used; got 'colour'"),
        ({"n_starts": 0}, "n_starts must be at least 1"),
        ({"n_random": 0}, "n, the number of random subspaces must be at least 1"),
        ({"n_steps": 0}, "n_steps must be at least 1"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
    ],
)
def test_wrong_input_is_refused(changes, message):
    arguments = {"variable": "used", "site": SITE, "k": 2, "n_starts": 1, "n_random": 1, "n_steps": 2, **changes}
    with pytest.raises(InputError, match=message):
        alignment_search(elimination_only(), ELIMINATE, fit=FIT, test=TEST, **arguments)


def test_a_gradient_that_is_no_number_is_refused():
    model = elimination_only()
    with torch.no_grad():
        model.unembed.b_U[1] = torch.nan
    with pytest.raises(InputError, match="the search at L0 resid_post pos -1 has a gradient of NaN"):
        learn_subspace(model, counterfactuals(ELIMINATE, FIT, "used", 6), SITE, 2, n_steps=2)
    with pytest.raises(InputError, match="b_U holds NaN"):
        alignment_search(model, ELIMINATE, "used", site=SITE, k=2, fit=FIT, test=TEST)


def test_a_token_without_any_probability_does_no_harm():
    model = elimination_only(margin=MARGIN)
    with torch.no_grad():
        model.unembed.b_U[0] = -torch.inf
    never = replace(ELIMINATE, answer=lambda known: ELIMINATE.answer(known) * (torch.arange(6) > 0))
    basis = learn_subspace(model, counterfactuals(never, FIT, "used", 6), SITE, 2, n_steps=2)
    assert basis.isfinite().all()
