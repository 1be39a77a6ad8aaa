"""The own hooked transformer against the one it stands for: TransformerLens 3.9's, and a native bridge where 4 is."""

import copy
from dataclasses import fields
from typing import Any

import pytest
import torch
from transformer_lens import TransformerLensKeyValueCache

from mnemoscope.core.errors import InputError
from mnemoscope.models import lens
from mnemoscope.models.building import silence_deprecation
from mnemoscope.models.hooked.config import HookedTransformerConfig
from mnemoscope.models.hooked.transformer import HookedTransformer
from mnemoscope.models.lens import HAS_HOOKED_TRANSFORMER
from tests.bridge import as_bridge
from tests.support import perturbed, seeded

theirs = pytest.mark.skipif(not HAS_HOOKED_TRANSFORMER, reason="TransformerLens 4 has no HookedTransformer")
_ROTARY = {"positional_embedding_type": "rotary", "d_head": 4}
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "no normalisation": {"normalization_type": None, "act_fn": "relu"},
    "folded": {"normalization_type": "LNPre", "use_attn_scale": False},
    "RMS": {"normalization_type": "RMS", "act_fn": "silu", "dtype": torch.float64},
    "attention only": {"attn_only": True, "act_fn": None, "scale_attn_by_inverse_layer_idx": True},
    "rotary": {**_ROTARY, "rotary_adjacent_pairs": True},
    "rotary halves": {**_ROTARY, "rotary_dim": 2, "dtype": torch.float64},
    "rotary stretched": {**_ROTARY, "use_NTK_by_parts_rope": True, "NTK_original_ctx_len": 32},
    "gated": {"gated_mlp": True},
    "shared keys": {"n_key_value_heads": 1},
    "parallel": {"parallel_attn_mlp": True},
    "like Llama": {
        **{**_ROTARY, "n_heads": 4, "n_key_value_heads": 2, "gated_mlp": True, "normalization_type": "RMS"},
        **{"final_rms": True, "act_fn": "silu"},
    },
    "local": {"use_local_attn": True, "window_size": 2, "attn_types": ["local", "global"]},
    "caps": {"output_logits_soft_cap": 1.5, "attn_scores_soft_cap": 2.0, "clip_qkv": 0.5},
    "shortformer": {"positional_embedding_type": "shortformer"},
    "bidirectional": {"attention_dir": "bidirectional"},
    "SoLU": {"act_fn": "solu_ln"},
    "ALiBi": {"positional_embedding_type": "alibi"},
    "normalised queries": {"use_qk_norm": True, "n_key_value_heads": 1},
    "normalised embeddings": {"post_embedding_ln": True},
    "normalised twice": {"use_normalization_before_and_after": True, "normalization_type": "RMS"},
    "hooked tokens": {"use_hook_tokens": True, "d_vocab_out": 50},
    "half precision": {"dtype": torch.bfloat16},
    "half precision, like Llama": {**_ROTARY, "gated_mlp": True, "normalization_type": "RMS", "dtype": torch.bfloat16},
    "half precision, ALiBi": {"positional_embedding_type": "alibi", "dtype": torch.bfloat16},
    "parallel and gated": {"parallel_attn_mlp": True, "gated_mlp": True, "normalization_type": "LNPre"},
    "local in both directions": {
        **{"use_local_attn": True, "window_size": 2, "attn_types": ["local", "local"], "attention_dir": "bidirectional"}
    },
    "seeded": {"seed": 5},
}
TOKENS = torch.randint(50, (3, 9), generator=seeded())
MASK = torch.tensor([[0] * 3 + [1] * 6, [1] * 7 + [0] * 2, [1] * 9])


def arguments(name: str) -> dict[str, Any]:
    sizes = {"n_layers": 2, "d_model": 8, "n_heads": 2, "d_head": 3, "n_ctx": 20, "d_vocab": 50}
    return {**sizes, "act_fn": "gelu_new", "device": "cpu", **CASES[name]}


def made(kind: type, config: type, name: str):
    with torch.random.fork_rng(devices=[]), silence_deprecation():
        torch.manual_seed(0)
        return kind(config(**arguments(name)))


def both(name: str):
    """TransformerLens's model and ours, as the same seed draws them."""
    from transformer_lens import HookedTransformer as Theirs
    from transformer_lens import HookedTransformerConfig as TheirConfig

    return made(Theirs, TheirConfig, name), made(HookedTransformer, HookedTransformerConfig, name)


def perturbed_pair(name: str):
    """With the same weights, none of them zero."""
    reference, ours = both(name)
    ours.load_state_dict(perturbed(reference).state_dict(), strict=True)
    return reference, ours


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """In names, their order, precision, every bit, and layout: products of another layout may have other last bits."""
    forms = [{name: (x.dtype, x.stride()) for name, x in tensors.items()} for tensors in (one, other)]
    return list(one) == list(other) and forms[0] == forms[1] and all(one[name].equal(other[name]) for name in one)


@theirs
@pytest.mark.parametrize("name", CASES)
class TestAgainstTransformerLens:
    def test_a_seed_draws_the_same_weights_and_buffers(self, name):
        reference, ours = both(name)
        assert equal(reference.state_dict(), ours.state_dict())
        assert [name for name, _ in reference.named_parameters()] == [name for name, _ in ours.named_parameters()]
        assert reference.cfg.to_dict().items() >= ours.cfg.to_dict().items()

    def test_logits_and_activations_are_the_same_bits(self, name):
        reference, ours = perturbed_pair(name)
        assert reference(TOKENS).equal(ours(TOKENS))
        assert reference(TOKENS, attention_mask=MASK).equal(ours(TOKENS, attention_mask=MASK))
        for model in (reference, ours):
            model.set_use_attn_result(True)
            model.set_use_split_qkv_input(True)
            if not model.cfg.attn_only:
                model.set_use_hook_mlp_in(True)
        for ungrouped in (False, True):
            caches = []
            for model in (reference, ours):
                model.set_ungroup_grouped_query_attention(ungrouped)
                caches.append(dict(model.run_with_cache(TOKENS)[1]))
            assert equal(*caches)
            assert len(caches[0]) > 20

    def test_what_is_written_at_any_hook_has_the_same_effect(self, name):
        pair = perturbed_pair(name)
        assert list(pair[0].hook_dict) == list(pair[1].hook_dict)
        for model in pair:
            model.set_use_split_qkv_input(True)
        for hook in pair[0].run_with_cache(TOKENS)[1]:
            if hook == "hook_tokens":
                continue
            written = [(hook, lambda activation, hook: activation * 0.5)]
            reference, ours = (model.run_with_hooks(TOKENS, fwd_hooks=written) for model in pair)
            assert reference.equal(ours), hook

    def test_gradients_are_the_same_bits(self, name):
        found = []
        for model in perturbed_pair(name):
            model(TOKENS).double().pow(2).sum().backward()
            found.append({name: value.grad for name, value in model.named_parameters() if value.grad is not None})
        assert equal(*found)

    def test_gradients_at_hooks_are_the_same_bits_and_come_in_the_same_order(self, name):
        found = []
        for model in perturbed_pair(name):
            hooked = [hook for hook in model.run_with_cache(TOKENS)[1] if hook != "hook_tokens"]
            given = {"names_filter": hooked, "return_type": "loss", "incl_bwd": True}
            found.append(dict(model.run_with_cache(TOKENS, **given)[1]))
        assert equal(*found)
        assert len(found[0]) > 20

    def test_parts_of_the_way_and_kept_keys_are_the_same(self, name):
        found = []
        for model in perturbed_pair(name):
            cache = TransformerLensKeyValueCache.init_cache(model.cfg, "cpu", 3)
            first = model(TOKENS[:, :4], attention_mask=MASK[:, :4], past_kv_cache=cache)
            second = model(TOKENS[:, 4:], attention_mask=MASK[:, 4:], past_kv_cache=cache)
            middle = model(TOKENS, stop_at_layer=1)
            places = None
            if model.cfg.positional_embedding_type == "shortformer":
                places = model.pos_embed(TOKENS)
            last = model(middle, start_at_layer=1, shortformer_pos_embed=places)
            loss = model(TOKENS, return_type="loss")
            found.append({"first": first, "second": second, "middle": middle, "last": last, "loss": loss})
        assert equal(*found)
        assert found[1]["last"].equal(found[1]["last"])

    def test_processed_weights_are_the_same_bits(self, name):
        pair = perturbed_pair(name)
        if pair[0].cfg.normalization_type not in ("LN", "RMS") or pair[0].cfg.attn_only:
            pair = [m for m in pair if m.cfg.normalization_type is None]
        for model in pair:
            model.process_weights_(center_unembed=False)
        if pair:
            assert equal(*(model.state_dict() for model in pair))
            assert pair[0](TOKENS).equal(pair[1](TOKENS))


def result_of(model, hook: str, dtype: torch.dtype):
    """The logits where an activation is written in another precision; None where that is an error."""
    try:
        return model.run_with_hooks(TOKENS, fwd_hooks=[(hook, lambda activation, hook: activation.to(dtype) * 0.5)])
    except RuntimeError:
        return None


@theirs
@pytest.mark.parametrize("name", ["plain", "gated", "half precision", "half precision, like Llama"])
def test_what_is_written_in_another_precision_has_the_same_effect(name):
    pair = perturbed_pair(name)
    other = torch.float32 if pair[0].cfg.dtype == torch.bfloat16 else torch.bfloat16
    found = {}
    for hook in pair[0].run_with_cache(TOKENS)[1]:
        reference, ours = (result_of(model, hook, other) for model in pair)
        assert (reference is None) == (ours is None), hook
        if reference is not None:
            found[hook] = reference.equal(ours) and reference.dtype == ours.dtype
    assert all(found.values())
    assert len(found) > 20


@theirs
def test_fields_order_and_defaults_of_a_configuration_are_theirs():
    from transformer_lens import HookedTransformerConfig as TheirConfig

    known = {field.name: field.default for field in fields(TheirConfig)}
    ours = {field.name: field.default for field in fields(HookedTransformerConfig)}
    assert [name for name in known if name in ours] == list(ours)
    assert {name: known[name] for name in ours} == ours


@pytest.mark.skipif(HAS_HOOKED_TRANSFORMER, reason="of TransformerLens 4")
def test_a_native_bridge_computes_the_same():
    sizes = {**arguments("plain"), "d_head": 4, "act_fn": "gelu"}
    model = perturbed(HookedTransformer(HookedTransformerConfig(**sizes)))
    torch.testing.assert_close(as_bridge(model)(TOKENS), model(TOKENS), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", sorted({*CASES} - {"caps", "gated", "shortformer"}))
def test_folding_leaves_the_logits(name):
    if name.startswith("half precision"):
        pytest.skip("another weight is rounded otherwise")
    model = perturbed(made(HookedTransformer, HookedTransformerConfig, name))
    result = copy.deepcopy(model)
    result.process_weights_(center_unembed=False)
    torch.testing.assert_close(result(TOKENS), model(TOKENS), atol=1e-4, rtol=1e-4)
    kind = model.cfg.normalization_type
    assert result.cfg.normalization_type == (f"{kind}Pre" if kind in ("LN", "RMS") else kind)


def test_long_inputs_make_more_rotary_angles_and_a_shorter_checkpoint_is_taken():
    sizes = {**arguments("rotary"), "n_ctx": 4096}
    model = HookedTransformer(HookedTransformerConfig(**sizes))
    assert len(model.blocks[0].attn.rotary_cos) == 2048
    long = torch.randint(50, (1, 2100), generator=seeded())
    model(long, stop_at_layer=1)
    assert len(model.blocks[0].attn.rotary_cos) == 4096
    short = HookedTransformer(HookedTransformerConfig(**sizes))
    short.load_state_dict(model.state_dict(), strict=True)
    assert short(TOKENS).equal(model(TOKENS))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_experts": 2}, r"has num_experts, .* load it with transformer-lens 3\.9 \(pip install"),
        ({"positional_embedding_type": "relative"}, "positional_embedding_type must be one of"),
        ({"normalization_type": "batch"}, "normalization_type must be one of"),
        ({"act_fn": "sine"}, "act_fn must be one of"),
        ({"init_mode": "muP"}, "init_mode must be"),
        ({"use_local_attn": True}, "needs window_size and attn_types"),
        ({"gated_mlp": True, "act_fn": "solu_ln"}, "gated_mlp with act_fn solu_ln is not computed"),
    ],
)
def test_what_is_not_computed_is_refused_in_a_line(changes, message):
    with pytest.raises(InputError, match=message) as found:
        HookedTransformerConfig.from_dict({**arguments("plain"), **changes})
    assert "\n" not in str(found.value)


def test_what_would_not_fire_or_is_missing_is_refused():
    model = made(HookedTransformer, HookedTransformerConfig, "plain")
    with pytest.raises(AssertionError, match="if use_attn_result is False"):
        model.add_hook("blocks.0.attn.hook_result", lambda activation, hook: None)
    with pytest.raises(InputError, match="no tokenizer"):
        model("text")
    with pytest.raises(InputError, match="return_type must be one of"):
        model(TOKENS, return_type="probabilities")
    state = {name: value for name, value in model.state_dict().items() if name != "blocks.1.attn.W_Q"}
    with pytest.raises(InputError, match=r"must hold every weight; blocks\.1\.attn\.W_Q are missing"):
        model.load_and_process_state_dict(state)


@pytest.mark.parametrize("kind", [HookedTransformer, lens.HookedTransformer])
def test_the_identity_is_an_activation_here(kind):
    config = lens.HookedTransformerConfig if kind is lens.HookedTransformer else HookedTransformerConfig
    model = kind(config(**{**arguments("plain"), "act_fn": "identity"}))
    assert model.blocks[0].mlp.act_fn(TOKENS) is TOKENS


def test_a_cache_answers_as_theirs_does():
    model = made(HookedTransformer, HookedTransformerConfig, "plain")
    _, cache = model.run_with_cache(TOKENS)
    assert cache["q", 1] is cache["blocks.1.attn.hook_q"]
    parts = cache.decompose_resid(-1, return_labels=False).sum(0)
    torch.testing.assert_close(parts, cache["blocks.1.hook_resid_post"], atol=1e-5, rtol=1e-5)
    with pytest.raises(KeyError):
        cache["blocks.9.attn.hook_q"]


def test_hooks_come_and_go_with_their_level():
    model, seen = made(HookedTransformer, HookedTransformerConfig, "plain"), []
    point, name = model.hook_dict["blocks.0.hook_resid_pre"], "blocks.0.hook_resid_pre"
    note = {label: lambda activation, hook, label=label: seen.append((label, hook.name)) for label in "abc"}
    model.add_perma_hook(name, note["a"])
    with model.hooks(fwd_hooks=[(name, note["b"])]):
        with model.hooks(fwd_hooks=[(lambda own: own == name, note["c"])]):
            model(TOKENS)
        model(TOKENS)
    model(TOKENS)
    assert [label for label, _ in seen] == ["a", "b", "c", "a", "b", "a"]
    assert {own for _, own in seen} == {name}
    assert point.layer() == 0
    point.ctx["kept"] = 1
    model.remove_all_hook_fns(including_permanent=True)
    assert not point.has_hooks()
    assert point.ctx == {"kept": 1}
    model.reset_hooks()
    assert point.ctx == {}
    with pytest.raises(KeyError):
        model.add_hook("blocks.0.hook_nowhere", note["a"])


def test_gradients_are_seen_and_replaced():
    model, seen = made(HookedTransformer, HookedTransformerConfig, "plain"), {}
    last = "blocks.1.hook_resid_post"
    model.add_hook(last, lambda gradient, hook: seen.update({hook.name: gradient}), dir="bwd")
    model.add_hook("blocks.0.hook_resid_post", lambda gradient, hook: torch.zeros_like(gradient), dir="bwd")
    model(TOKENS).sum().backward()
    assert seen[last].shape == (*TOKENS.shape, model.cfg.d_model)
    assert model.W_E.grad is None or not model.W_E.grad.any()
    _, cache = made(HookedTransformer, HookedTransformerConfig, "plain").run_with_cache(
        TOKENS, return_type="loss", incl_bwd=True, names_filter=last, pos_slice=-1
    )
    assert list(cache) == [last, f"{last}_grad"]
    assert cache[last].shape == (len(TOKENS), 1, model.cfg.d_model)
