"""Hook points on modules that nothing converts, against plain hooks, by transformers' own names and by nnsight."""

import os
from importlib.util import find_spec

import pytest
import torch
from torch import nn

import mnemoscope as ms
from mnemoscope.models import from_nnsight, from_transformers
from tests.architectures import ARCHITECTURES, D_VOCAB, architecture
from tests.support import seeded

ATTENTION = {"GPT-2": "transformer.h.{}.attn", "BLOOM": "transformer.h.{}.self_attention.dense"}
MLP = {"GPT-2": "transformer.h.{}.mlp", "BLOOM": "transformer.h.{}.mlp.dense_4h_to_h"}
BLOCKS = {"GPT-2": "transformer.h.{}", "BLOOM": "transformer.h.{}"}
BY_KIND = {"attn_out": ATTENTION, "mlp_out": MLP, "resid_post": BLOCKS}
needs_nnsight = pytest.mark.skipif(find_spec("nnsight") is None, reason="nnsight is not installed")


def nnsight_model(module):
    from nnsight import NNsight

    return from_nnsight(NNsight(module))


WAYS = [pytest.param(from_transformers, id="plain"), pytest.param(nnsight_model, id="nnsight", marks=needs_nnsight)]


def prompt_pairs() -> ms.PromptPairs:
    tokens = torch.randint(3, D_VOCAB, (4, 2, 8), generator=seeded())
    scored = torch.zeros(2, 8, dtype=torch.bool)
    scored[:, -1] = True
    clean, corrupted = (ms.Batch(inputs=tokens[i], targets=tokens[i + 2], scored=scored) for i in range(2))
    return ms.PromptPairs(clean=clean, corrupted=corrupted, name="random")


def with_first(output, new):
    return (new, *output[1:]) if isinstance(output, tuple) else new


def first(output):
    return output[0] if isinstance(output, tuple) else output


@torch.no_grad()
def plainly_patched(module, name, pairs, pos):
    """Logits of the clean prompts with the output of a submodule from the corrupted ones, by hooks of torch alone."""
    part, kept = module.get_submodule(name), []
    handle = part.register_forward_hook(lambda _, given, output: kept.append(first(output)))
    module(pairs.corrupted.inputs)
    handle.remove()

    def patch(_, given, output):
        new = first(output).clone()
        new[:, pos] = kept[0][:, pos]
        return with_first(output, new)

    handle = part.register_forward_hook(patch)
    logits = module(pairs.clean.inputs).logits
    handle.remove()
    return logits


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", BY_KIND)
@pytest.mark.parametrize("name", ATTENTION)
def test_a_patch_equals_plain_hooks(way, name, kind):
    module, pairs = architecture(name), prompt_pairs()
    patched = ms.patch(way(module), pairs, kind=kind, over=("layer", "pos"), directions=["noising"])
    answers, foils = (side.targets[:, -1] for side in (pairs.clean, pairs.corrupted))
    for layer in range(2):
        for pos in (2, 7):
            logits = plainly_patched(module, BY_KIND[kind][name].format(layer), pairs, pos)[:, -1]
            expected = (logits.gather(1, answers[:, None]) - logits.gather(1, foils[:, None]))[:, 0]
            found = patched.value.sel(layer=layer, pos=pos).squeeze().values
            assert abs(torch.tensor(found) - expected).max() < 1e-6


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_has_its_points(name):
    module = architecture(name)
    model, tokens = from_transformers(module), prompt_pairs().clean.inputs
    logits, found = model.run_with_cache(tokens)
    assert torch.equal(logits, module(tokens).logits)
    for layer in range(2):
        before, attn, mlp, after = (
            found[f"blocks.{layer}.hook_{kind}"] for kind in ("resid_pre", "attn_out", "mlp_out", "resid_post")
        )
        assert torch.allclose(before + attn + mlp, after, atol=1e-5)
    assert torch.equal(found["hook_embed"], module.get_input_embeddings()(tokens))
    assert torch.equal(found["hook_logits"], logits)


@pytest.mark.parametrize("way", WAYS)
def test_the_module_has_hooks_only_during_a_pass(way):
    module = architecture("GPT-2")
    model, tokens = way(module), prompt_pairs().clean.inputs

    def fail(activation, hook):
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        model.run_with_hooks(tokens, fwd_hooks=[("blocks.1.hook_attn_out", fail)])
    assert not any(point.has_hooks() for point in model.hook_points())
    if way is from_transformers:
        assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    assert torch.equal(model(tokens), module(tokens).logits)


@pytest.mark.parametrize("way", WAYS)
def test_gradients_at_points_equal_plain_ones(way):
    module, pairs = architecture("GPT-2"), prompt_pairs()
    found = ms.analyses.estimate(way(module), pairs, kind="attn_out", over=("layer", "pos"), directions=["noising"])
    for layer in range(2):
        part, kept = module.get_submodule(f"transformer.h.{layer}.attn"), []

        def keep(_, given, output, kept=kept):
            kept.append(output[0].detach().requires_grad_())
            return with_first(output, kept[-1])

        handle = part.register_forward_hook(keep)
        module(pairs.corrupted.inputs)
        logits = module(pairs.clean.inputs).logits[:, -1]
        handle.remove()
        answers, foils = (side.targets[:, -1:] for side in (pairs.clean, pairs.corrupted))
        clean = (logits.gather(1, answers) - logits.gather(1, foils))[:, 0]
        (gradient,) = torch.autograd.grad(clean.sum(), kept[1])
        expected = clean[:, None] + (gradient * (kept[0] - kept[1])).sum(-1)
        estimated = torch.tensor(found.value.sel(layer=layer).squeeze().transpose("prompt", "pos").values)
        assert abs(estimated - expected).max() < 1e-5


@pytest.mark.parametrize(
    ("what", "missing"),
    [
        (lambda model, pairs: ms.patch(model, pairs, kind="z", over=("layer",)), "the model has no z"),
        (lambda model, pairs: ms.analyses.patterns(model, pairs.clean), "blocks.0.attn.hook_pattern"),
        (lambda model, pairs: model.run_with_hooks(pairs.clean.inputs, fwd_hooks=[("hook_mid", print)]), "hook_mid"),
        (lambda model, pairs: model.W_U, "W_U"),
        (lambda model, pairs: model.blocks[0].attn, "attn"),
        (lambda model, pairs: ms.run_with(model, pairs.clean, [ms.Zero(site=ms.Site(kind="v", layer=1))]), "hook_v"),
    ],
)
def test_what_is_missing_is_refused_in_one_line(what, missing):
    with pytest.raises(ms.InputError, match=missing) as refusal:
        what(from_transformers(architecture("BLOOM")), prompt_pairs())
    assert "\n" not in str(refusal.value)


class Scaled(nn.Module):
    """A block whose parts do not add up as they are."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        x = x + 0.5 * self.one(x)
        return x + 0.5 * self.other(x)


class Stack(nn.Module):
    def __init__(self, *blocks):
        super().__init__()
        self.embed, self.parts, self.head = nn.Embedding(20, 8), nn.ModuleList(blocks), nn.Linear(8, 20)

    def forward(self, tokens):
        x = self.embed(tokens)
        for part in self.parts:
            x = part(x)
        return self.head(x)


def test_parts_that_do_not_add_up_have_no_points():
    model = from_transformers(Stack(Scaled(), Scaled()))
    assert "blocks.0.hook_resid_post" in model.hook_dict
    assert "blocks.0.hook_attn_out" not in model.hook_dict
    with pytest.raises(ms.InputError, match="must name parts that add up"):
        from_transformers(Stack(Scaled(), Scaled()), names={"attn_out": "one", "mlp_out": "other"})
    with pytest.raises(ms.InputError, match="no list of submodules is found"):
        from_transformers(nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20)))


@pytest.mark.skipif("TYPECHECK" in os.environ, reason="annotations that are checked refuse it first")
def test_a_word_is_no_module():
    with pytest.raises(ms.InputError, match="must be a torch module"):
        from_transformers("gpt2")  # pyright: ignore[reportArgumentType]


def test_names_choose_submodules():
    model = from_transformers(architecture("GPT-2"), names={"attn_out": "attn.c_proj", "mlp_out": "mlp.c_proj"})
    assert model.places["blocks.1.hook_attn_out"].module == "transformer.h.1.attn.c_proj"
    with pytest.raises(ms.InputError, match=r"has no attn\.nothing"):
        from_transformers(architecture("GPT-2"), names={"attn_out": "attn.nothing"})
