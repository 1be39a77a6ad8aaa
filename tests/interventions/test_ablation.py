from copy import deepcopy

import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.core.intervention import REPLACEMENTS, Ablation
from mnemoscope.core.site import Site
from mnemoscope.interventions.ablation import reference_activations, run_ablated, sites
from tests.support import Predictor, foreign_model, random_model, seeded, small_spec

TOKENS = torch.randint(1, 6, (40, 9), generator=seeded())
REFERENCE = torch.randint(1, 6, (30, 9), generator=seeded(1))
MODELS = {
    "two layers": lambda: random_model(n_layers=2),
    "attention only": lambda: random_model(mlp=False),
    "foreign": lambda: foreign_model(),
}


def ablated(model, *ablations: Ablation, seed: int = 0, reference=REFERENCE):
    activations = reference_activations(model, reference, [a.site for a in ablations])
    return run_ablated(model, TOKENS, ablations, activations, seeded(seed))


def hooks(model) -> int:
    return sum(len(point.fwd_hooks) + len(point.bwd_hooks) for point in model.hook_dict.values())


def exposed() -> torch.nn.Module:
    """A model whose attention output is its z, heads side by side: W_O is the identity, b_O zero."""
    model = random_model(mlp=False, d_model=8, n_heads=2)
    with torch.no_grad():
        model.blocks[0].attn.b_O.zero_()
        for head in range(2):
            model.blocks[0].attn.W_O[head] = torch.eye(8)[4 * head : 4 * head + 4]
    return model


def z_of(model, *ablations: Ablation, seed: int = 0):
    """The z that the ablated forward pass goes on with: batch pos (head_index d_head)."""
    seen = []
    model.blocks[0].hook_attn_out.add_hook(lambda z, hook: seen.append(z))
    ablated(model, *ablations, seed=seed)
    model.reset_hooks()
    return seen[-1]


def test_every_head_and_every_mlp_is_a_site():
    names = {name: [str(site) for site in sites(make())] for name, make in MODELS.items()}
    assert names["two layers"] == ["L0H0", "L0H1", "L1H0", "L1H1", "L0 MLP", "L1 MLP"]
    assert names["attention only"] == ["L0H0", "L0H1"]


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_no_ablation_changes_nothing(make):
    model = make()
    assert torch.equal(run_ablated(model, TOKENS, [], {}, seeded()), model(TOKENS))


@pytest.mark.parametrize("kind", REPLACEMENTS)
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_every_site_can_be_ablated_and_nothing_is_left_behind(make, kind):
    model = make()
    clean = model(TOKENS)
    for site in sites(model):
        assert not torch.allclose(ablated(model, Ablation(site=site, kind=kind)), clean, atol=1e-4), site
        assert hooks(model) == 0
        assert torch.equal(model(TOKENS), clean)


def test_the_users_hooks_stay_in_force():
    model = random_model()
    head = Ablation(site=Site(kind="z", layer=0, head=0), kind="zero")
    without = ablated(model, head)
    model.add_hook("hook_embed", lambda value, hook: 2 * value)
    doubled = deepcopy(random_model())
    with torch.no_grad():
        doubled.embed.W_E *= 2
    assert torch.equal(run_ablated(model, TOKENS, [], {}, seeded()), doubled(TOKENS))
    assert torch.equal(ablated(model, head), ablated(doubled, head))
    assert not torch.allclose(ablated(model, head), without, atol=1e-3)
    assert hooks(model) == 1
    assert torch.equal(model(TOKENS), doubled(TOKENS))


def test_nothing_is_left_behind_after_an_exception():
    model = random_model()
    clean = model(TOKENS)
    model.add_hook("hook_embed", lambda value, hook: value)
    for kind in ("mean", "resample"):
        mlp = Ablation(site=Site(kind="mlp_out", layer=0), kind=kind)
        with pytest.raises(InputError, match=f"{kind}-ablate L0 MLP needs a reference set"):
            run_ablated(model, TOKENS, [Ablation(site=Site(kind="z", layer=0, head=0), kind="zero"), mlp], {}, seeded())
    assert hooks(model) == 1
    assert torch.equal(model(TOKENS), clean)


@pytest.mark.parametrize(
    ("site", "message"),
    [
        ({"kind": "z", "layer": 1, "head": 0}, "the layer of a site must be from 0 to 0; got 1"),
        ({"kind": "z", "layer": 0, "head": 2}, "the head of a site must be from 0 to 1; got 2"),
        ({"kind": "z", "layer": 0, "head": -1}, "the head of a site must be from 0 to 1; got -1"),
        ({"kind": "mlp_out", "layer": 0}, "L0 MLP does not exist: the model has no MLP"),
    ],
)
def test_a_site_that_does_not_exist_is_refused(site, message):
    model = random_model(mlp=False)
    with pytest.raises(InputError, match=message):
        run_ablated(model, TOKENS, [Ablation(site=Site(**site), kind="zero")], {}, seeded())


def test_what_a_hook_of_the_user_has_kept_is_not_written_to():
    model, kept = random_model(), []
    model.add_hook("blocks.0.attn.hook_z", lambda z, hook: kept.append(z))
    model(TOKENS)
    run_ablated(model, TOKENS, [Ablation(site=Site(kind="z", layer=0, head=0), kind="zero")], {}, seeded())
    assert torch.equal(kept[1], kept[0])


def test_zero_ablation_of_all_heads_leaves_the_output_bias():
    model = random_model()
    block, resid = model.blocks[0], model.embed(TOKENS) + model.pos_embed(TOKENS)
    resid = resid + block.attn.b_O
    normed = block.ln2(resid)
    hidden = torch.relu(normed @ block.mlp.W_in + block.mlp.b_in)
    by_hand = model.ln_final(resid + hidden @ block.mlp.W_out + block.mlp.b_out) @ model.W_U + model.b_U
    both = [Ablation(site=Site(kind="z", layer=0, head=head), kind="zero") for head in range(2)]
    torch.testing.assert_close(ablated(model, *both), by_hand)


def test_zero_ablation_of_an_mlp_takes_it_out():
    model, without = random_model(), random_model()
    with torch.no_grad():
        without.blocks[0].mlp.W_out.zero_()
        without.blocks[0].mlp.b_out.zero_()
    zero = Ablation(site=Site(kind="mlp_out", layer=0), kind="zero")
    torch.testing.assert_close(ablated(model, zero), without(TOKENS))


@pytest.mark.parametrize("kind", REPLACEMENTS)
def test_only_the_named_head_changes(kind):
    model = exposed()
    clean, changed = z_of(model), z_of(model, Ablation(site=Site(kind="z", layer=0, head=1), kind=kind))
    assert torch.equal(changed[..., :4], clean[..., :4])
    assert not torch.isclose(changed[..., 4:], clean[..., 4:]).flatten(1).all(1).any()


def test_the_mean_is_taken_over_the_reference_position_by_position():
    model = exposed()
    changed = z_of(model, Ablation(site=Site(kind="z", layer=0, head=1), kind="mean"))[..., 4:]
    _, cache = model.run_with_cache(REFERENCE)
    z = cache["blocks.0.attn.hook_z"].tolist()
    by_hand = [[sum(row[pos][1][d] for row in z) / len(z) for d in range(4)] for pos in range(9)]
    torch.testing.assert_close(changed, torch.tensor(by_hand).expand(40, 9, 4))


def test_resampling_takes_whole_rows_of_the_reference_at_random():
    model, head = exposed(), Ablation(site=Site(kind="z", layer=0, head=1), kind="resample")
    changed = z_of(model, head)[..., 4:]
    _, cache = model.run_with_cache(REFERENCE)
    rows = cache["blocks.0.attn.hook_z"][:, :, 1]
    matches = torch.isclose(changed[:, None], rows[None]).flatten(2).all(2)  # sequence reference
    assert matches.any(1).all()
    assert len(set(matches.int().argmax(1).tolist())) > 15  # 40 draws of 30 rows: 22 different expected
    assert torch.equal(changed, z_of(model, head)[..., 4:])
    assert not torch.equal(changed, z_of(model, head, seed=1)[..., 4:])


def test_resampling_from_one_sequence_patches_it_in():
    model = exposed()
    both = [Ablation(site=Site(kind="z", layer=0, head=head), kind="resample") for head in range(2)]
    activations = reference_activations(model, REFERENCE[:1], [a.site for a in both])
    resid = model.embed(TOKENS) + model.pos_embed(TOKENS)
    attn_out = activations["blocks.0.attn.hook_z"].flatten(2)
    by_hand = model.ln_final(resid + attn_out) @ model.W_U + model.b_U
    torch.testing.assert_close(run_ablated(model, TOKENS, both, activations, seeded()), by_hand)


def test_reference_activations_are_those_of_the_sites():
    model = random_model(n_layers=2)
    chosen = [Site(kind="z", layer=1, head=0), Site(kind="z", layer=1, head=1), Site(kind="mlp_out", layer=0)]
    activations = reference_activations(model, REFERENCE, chosen)
    assert {name: value.shape for name, value in activations.items()} == {
        "blocks.1.attn.hook_z": (30, 9, 2, 4),
        "blocks.0.hook_mlp_out": (30, 9, 8),
    }
    assert not any(value.requires_grad for value in activations.values())


def test_a_stand_in_that_is_no_hooked_model_says_so():
    with pytest.raises(NotImplementedError):
        run_ablated(Predictor(small_spec().task), TOKENS, [], {}, seeded())
