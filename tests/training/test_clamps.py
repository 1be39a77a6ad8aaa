"""Clamps in training, against a transformer with hand-made changes and plain autograd."""

import math

import pytest
import torch

from mnemoscope.core.batch import Batch
from mnemoscope.core.clamp import Clamp
from mnemoscope.core.metrics import loss as token_losses
from mnemoscope.core.specification import ModelSpec, Recipe
from mnemoscope.interventions.clamping import Clamping
from mnemoscope.interventions.truncation import truncate
from mnemoscope.models.building import detached_parameters
from mnemoscope.training.learner import Learner
from mnemoscope.training.schedule import Examples, frozen_names
from tests.support import random_model, seeded
from tests.training.lookup_with_parts import WithParts, copied, shifted

SPEC = ModelSpec(d_model=8, n_heads=2, n_layers=2, dtype="float64", normalization="none", d_mlp=6)
SCORED = torch.tensor([2, 4, 6, 8])
N_POS = 9


def by_hand(params, inputs, edit, weights=lambda name, value: value):
    """The logits, with `edit` called with the name of every activation; written out for one layer after the other."""
    p = {name: weights(name, value) for name, value in params.items()}
    stream = edit("embed", p["embed.W_E"][inputs]) + edit("pos_embed", p["pos_embed.W_pos"][: inputs.shape[1]])
    hidden = torch.full((inputs.shape[1],) * 2, -math.inf, dtype=stream.dtype).triu(1)
    for layer in range(SPEC.n_layers):
        at = f"blocks.{layer}.attn."
        stream = edit(f"L{layer} resid_pre", stream)
        q, k, v = (
            edit(
                f"L{layer} {x}",
                torch.einsum("bpm,hmd->bphd", stream, p[f"{at}W_{x.upper()}"]) + p[f"{at}b_{x.upper()}"],
            )
            for x in "qkv"
        )
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(SPEC.head_width) + hidden
        scores = edit(f"L{layer} scores", scores)
        empty = (scores == -math.inf).all(-1, keepdim=True)
        pattern = edit(f"L{layer} pattern", scores.masked_fill(empty, 0).softmax(-1).masked_fill(empty, 0))
        z = edit(f"L{layer} z", torch.einsum("bhqk,bkhd->bqhd", pattern, v))
        result = edit(f"L{layer} result", torch.einsum("bphd,hdm->bphm", z, p[at + "W_O"]))
        stream = edit(f"L{layer} resid_mid", stream + edit(f"L{layer} attn_out", result.sum(2) + p[at + "b_O"]))
        at = f"blocks.{layer}.mlp."
        post = edit(f"L{layer} post", edit(f"L{layer} pre", stream @ p[at + "W_in"] + p[at + "b_in"]).relu())
        stream = edit(
            f"L{layer} resid_post", stream + edit(f"L{layer} mlp_out", post @ p[at + "W_out"] + p[at + "b_out"])
        )
    return edit("logits", stream @ p["unembed.W_U"] + p["unembed.b_U"])


def only(name, change, mask=lambda x: torch.ones_like(x, dtype=torch.bool)):
    """An edit of one activation where a mask says so."""
    return lambda given, x: torch.where(mask(x), change(x), x) if given == name else x


def along(axis, *chosen):
    """A mask of some places along an axis."""

    def mask(x):
        there = torch.isin(torch.arange(x.shape[axis]), torch.tensor(chosen))
        return there.view(*(-1 if i == axis else 1 for i in range(x.ndim))).expand_as(x)

    return mask


def previous(x):
    new = torch.diag(torch.ones(N_POS - 1, dtype=x.dtype), -1)
    return torch.cat([x[:, :, :1], new[1:].expand(*x.shape[:2], -1, -1)], 2)


seen = {}


def first_key(x, score):
    return torch.cat([score, x[..., 1:]], -1)


def keep(name, other):
    def edit(given, x):
        if given == name:
            seen[name] = x
        return other(given, x)

    return edit


CASES = {
    "L1H0=zero": only("L1 z", torch.zeros_like, along(2, 0)),
    "L1H0,1=zero": only("L1 z", torch.zeros_like),
    "L0H1 v=zero ramp 3": only("L0 v", lambda x: 0.75 * x, along(2, 1)),
    "L0 mlp_out=mean": only("L0 mlp_out", lambda x: x.mean(0, keepdim=True).expand_as(x)),
    "L1 resid_pre pos (1, -1)=scale 0.5": only("L1 resid_pre", lambda x: 0.5 * x, along(1, 1, 8)),
    "L1 post neuron (0, 3)=scale 2.0 ramp 1": only("L1 post", lambda x: 1.5 * x, along(2, 0, 3)),
    "L0H0 pattern=pattern previous token": only("L0 pattern", previous, along(1, 0)),
    "L0H0 pattern=pattern previous token ramp 4": only(
        "L0 pattern", lambda x: 0.8 * x + 0.2 * previous(x), along(1, 0)
    ),
    "L1H1 scores key 0=knockout": only("L1 scores", lambda x: first_key(x, x[..., :1] - math.inf), along(1, 1)),
    "L1H1 scores key 0=knockout ramp 1": only(
        "L1 scores", lambda x: first_key(x, x[..., :1] + math.log(0.5)), along(1, 1)
    ),
    "L1H0=patch L1H1": only("L1 z", lambda x: x[:, :, 1:].expand_as(x), along(2, 0)),
    "L1H1 result=scale 0.25": only("L1 result", lambda x: 0.25 * x, along(2, 1)),
    "L1 attn_out pos (2, 4)=patch L1 resid_pre pos (1, 3)": keep(
        "L1 resid_pre", only("L1 attn_out", lambda x: shifted(seen["L1 resid_pre"]), along(1, 2, 4))
    ),
    "ideal previous": keep(
        "L0 resid_pre", only("L0 attn_out", lambda x: shifted(seen["L0 resid_pre"]), along(1, 1, 3, 5, 7))
    ),
    "ideal match": only("L1 pattern", lambda x: torch.eye(N_POS, dtype=x.dtype).expand_as(x), along(1, 0)),
    "ideal copy": None,
    "ideal copy ramp 1": None,
}


def copying(share):
    def edit(given, x):
        if given == "L1 pattern":
            seen[given] = x
        if given == "logits":
            return (1 - share) * x + share * copied(seen["inputs"], seen["L1 pattern"][:, 0])
        return x

    return edit


@pytest.fixture(scope="module")
def batch() -> Batch:
    return WithParts().for_seed(0).sample(12, split="train", generator=seeded())


@pytest.fixture(scope="module")
def params() -> dict[str, torch.Tensor]:
    return detached_parameters(
        random_model(**{f: getattr(SPEC, f) for f in ("n_layers", "dtype", "normalization", "d_mlp")})
    )


def losses_and_gradients(params, held, batch):
    learner = Learner(SPEC, Recipe(), [params], [{}])
    learner.hold(frozenset())
    examples = Examples(*(part[None] for part in (batch.inputs, batch.targets, batch.scored)))
    losses = learner.losses(WithParts().loss, examples, SCORED, held)
    losses.sum().backward()
    return losses[0].detach(), {name: value.grad for name, value in learner._params.items()}


def expected(params, batch, edit, weights=lambda name, value: value):
    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    seen["inputs"] = batch.inputs
    logits = by_hand(leaves, batch.inputs, edit, weights)
    found = token_losses(logits, batch.targets)[:, SCORED]
    scored = batch.scored[:, SCORED]
    loss = (found * scored).sum() / scored.sum()
    grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return loss.detach(), dict(zip(leaves, grads, strict=True))


def clamping_of(*texts: str) -> Clamping:
    return Clamping(clamps=tuple(map(Clamp.read, texts)), task=WithParts(), n_heads=2, d_mlp=6)


def held_by(text: str, batch: Batch):
    """The clamp at its own place."""
    clamp = Clamp.read(text)
    return clamping_of(text).hold([(clamp, clamp.share(0))], [batch])


def assert_equal(ours, theirs):
    torch.testing.assert_close(ours[0], theirs[0], atol=1e-12, rtol=0)
    for name, gradient in theirs[1].items():
        found = ours[1][name]
        if found is None or gradient is None:  # nothing depends on it
            assert [each for each in (found, gradient) if each is not None and each.any()] == [], name
        else:
            torch.testing.assert_close(found, gradient, atol=1e-12, rtol=0)


@pytest.mark.parametrize("text", CASES)
def test_loss_and_gradients_are_those_of_the_change_made_by_hand(text, params, batch):
    edit = CASES[text] or copying(0.5 if "ramp" in text else 1.0)
    free = expected(params, batch, lambda name, x: x)
    ours, theirs = losses_and_gradients(params, held_by(text, batch), batch), expected(params, batch, edit)
    assert_equal(ours, theirs)
    assert_equal(losses_and_gradients(params, clamping_of(text).held(0, lambda: [batch]), batch), theirs)
    assert abs(float(ours[0] - free[0])) > 1e-6, "the clamp does something"


FOLDED = {
    "embed=scale 0.5": only("embed", lambda x: 0.5 * x),
    "pos_embed=zero ramp 1": only("pos_embed", lambda x: 0.5 * x),
    "L0H1 q=scale 2.0": only("L0 q", lambda x: 2 * x, along(2, 1)),
    "L1 k=zero": only("L1 k", torch.zeros_like),
    "L1H0 v=scale 0.5": only("L1 v", lambda x: 0.5 * x, along(2, 0)),
    "L0H0=zero": only("L0 z", torch.zeros_like, along(2, 0)),
    "L0H0 result=scale 3.0 ramp 1": only("L0 result", lambda x: 2 * x, along(2, 0)),
    "L0 attn_out=zero": only("L0 attn_out", torch.zeros_like),
    "L1 MLP=zero ramp 3": only("L1 mlp_out", lambda x: 0.75 * x),
}


@pytest.mark.parametrize("text", FOLDED)
def test_a_factor_is_put_on_the_weights_that_write(text, params, batch):
    held = clamping_of(text).held(0, lambda: [batch])
    assert held.parts == ()
    theirs = expected(params, batch, FOLDED[text])
    assert_equal(losses_and_gradients(params, held, batch), theirs)
    assert_equal(losses_and_gradients(params, held_by(text, batch), batch), theirs)


def test_by_hand_and_without_clamp_it_is_the_same_model(params, batch):
    assert_equal(losses_and_gradients(params, None, batch), expected(params, batch, lambda name, x: x))


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("L0 W_in=zero", lambda name, x: 0 * x if name == "blocks.0.mlp.W_in" else x),
        ("L0H1 W_O=scale 0.5", lambda name, x: torch.cat([x[:1], 0.5 * x[1:]]) if name == "blocks.0.attn.W_O" else x),
        ("W_U=zero ramp 3", lambda name, x: 0.75 * x if name == "unembed.W_U" else x),
    ],
)
def test_weights_are_clamped_alike(text, weights, params, batch):
    ours = losses_and_gradients(params, held_by(text, batch), batch)
    assert_equal(ours, expected(params, batch, lambda name, x: x, weights))


def test_clamps_at_one_place_act_in_their_order(params, batch):
    held = clamping_of("L1H0=scale 0.5", "L1H1=patch L1H0", "L1H0=zero").held(0, lambda: [batch])
    after = only("L1 z", lambda x: torch.stack([torch.zeros_like(x[:, :, 0]), 0.5 * x[:, :, 0]], 2))
    assert_equal(losses_and_gradients(params, held, batch), expected(params, batch, after))


def test_a_latent_may_name_the_position(params, batch):
    clamp = "L0 resid_post pos source_pos=zero"
    rows = batch.latents["source_pos"]
    edit = only(
        "L0 resid_post", torch.zeros_like, lambda x: (torch.arange(N_POS) == rows[:, None])[..., None].expand_as(x)
    )
    assert_equal(losses_and_gradients(params, held_by(clamp, batch), batch), expected(params, batch, edit))


# ---- truncated weights


@pytest.mark.parametrize("shape", [(5, 4), (3, 4, 6)])
@pytest.mark.parametrize("rank", [0, 2, 9])
def test_the_gradient_of_a_truncated_matrix_is_exact(shape, rank):
    matrix = torch.randn(shape, generator=seeded(3), dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda m: truncate(m, rank), (matrix,), atol=1e-6)


def test_equal_singular_values_on_one_side_of_the_cut_do_no_harm():
    matrix = torch.diag(torch.tensor([3.0, 3.0, 1.0, 1.0], dtype=torch.float64)).requires_grad_()
    truncate(matrix, 2).sum().backward()
    assert matrix.grad is not None
    assert matrix.grad.isfinite().all()


def test_a_clamped_rank_is_that_of_the_matrix(params, batch):
    held = held_by("L0 W_in=rank 3", batch)
    changed = held.change_weights(params)["blocks.0.mlp.W_in"]
    left, size, right = torch.linalg.svd(params["blocks.0.mlp.W_in"])
    torch.testing.assert_close(changed, left[:, :3] @ torch.diag(size[:3]) @ right[:3])
    both = held_by("L0 W_in=rank 3 ramp 3", batch).change_weights(params)["blocks.0.mlp.W_in"]
    torch.testing.assert_close(both, 0.25 * changed + 0.75 * params["blocks.0.mlp.W_in"])


def test_a_weight_is_held_from_start_to_stop():
    recipe = Recipe(clamps=(Clamp(place="L0 W_in", value="hold", start=2, stop=4),))
    held = [frozen_names(recipe, ["blocks.0.mlp.W_in", "embed.W_E"], step) for step in range(5)]
    assert held == [set(), set(), {"blocks.0.mlp.W_in"}, {"blocks.0.mlp.W_in"}, set()]
