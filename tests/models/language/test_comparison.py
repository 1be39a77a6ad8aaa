"""Configurations of many families: a model that loads computes what its source computes, every other is refused."""

import pytest
import torch
import transformers

import mnemoscope as ms
from mnemoscope import InputError
from mnemoscope.models import bridged_language_model
from mnemoscope.models.language import conversion
from tests.language_models import N_TOKENS, save, tokenizer
from tests.support import perturbed

_TOKENS = {"vocab_size": N_TOKENS, "bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 2}
_GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 64, **_TOKENS}
_SIZES = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64, **_TOKENS,
}  # fmt: skip
_GROUPED = {**_SIZES, "num_key_value_heads": 2}
_OPT = {
    "hidden_size": 16, "ffn_dim": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "word_embed_proj_dim": 16,
    "max_position_embeddings": 64, **_TOKENS,
}  # fmt: skip


def _rope(kind: str, **options) -> dict:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 1e4, "factor": 2.0, **options}}


_LLAMA3 = _rope("llama3", low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
_LONG = {"short_factor": [1.0, 2.0], "long_factor": [3.0, 9.0], "original_max_position_embeddings": 48}
_WINDOW = {"use_sliding_window": True, "sliding_window": 48, "max_window_layers": 1}
CASES = {
    "gpt2": ("GPT2", _GPT2),
    "gpt2, scale by layer": ("GPT2", {**_GPT2, "scale_attn_by_inverse_layer_idx": True}),
    "gpt2, no scale": ("GPT2", {**_GPT2, "scale_attn_weights": False}),
    "gpt2, epsilon": ("GPT2", {**_GPT2, "layer_norm_epsilon": 0.1}),
    "gpt2, relu, wide MLP": ("GPT2", {**_GPT2, "activation_function": "relu", "n_inner": 40}),
    "neox": ("GPTNeoX", {**_SIZES, "rotary_pct": 0.5}),
    "neox, in sequence": ("GPTNeoX", {**_SIZES, "rotary_pct": 0.5, "use_parallel_residual": False}),
    "neox, no biases of attention": ("GPTNeoX", {**_SIZES, "rotary_pct": 0.5, "attention_bias": False}),
    "gptj": ("GPTJ", {**_GPT2, "rotary_dim": 4}),
    "gptj, epsilon": ("GPTJ", {**_GPT2, "rotary_dim": 4, "layer_norm_epsilon": 0.1}),
    "gpt neo, window": (
        "GPTNeo",
        {"hidden_size": 16, "num_layers": 2, "num_heads": 4, "max_position_embeddings": 64, "window_size": 48,
         "attention_types": [[["global", "local"], 1]], **_TOKENS},
    ),
    "llama": ("Llama", _GROUPED),
    "llama, linear": ("Llama", {**_GROUPED, **_rope("linear")}),
    "llama, yarn": ("Llama", {**_GROUPED, **_rope("yarn", original_max_position_embeddings=32)}),
    "llama, 3.1": ("Llama", {**_GROUPED, **_LLAMA3}),
    "llama, dynamic": ("Llama", {**_GROUPED, **_rope("dynamic")}),
    "llama, biases of attention": ("Llama", {**_GROUPED, "attention_bias": True}),
    "llama, biases of MLPs": ("Llama", {**_GROUPED, "mlp_bias": True}),
    "llama, wide heads": ("Llama", {**_GROUPED, "head_dim": 6}),
    "llama, gelu": ("Llama", {**_GROUPED, "hidden_act": "gelu"}),
    "mistral": ("Mistral", {**_GROUPED, "sliding_window": None}),
    "mistral, window": ("Mistral", {**_GROUPED, "sliding_window": 48}),
    "mistral, linear": ("Mistral", {**_GROUPED, "sliding_window": None, **_rope("linear")}),
    "qwen2": ("Qwen2", _GROUPED),
    "qwen2, window from layer 1": ("Qwen2", {**_GROUPED, **_WINDOW}),
    "qwen3": ("Qwen3", {**_GROUPED, "head_dim": 4}),
    "phi": ("Phi", {**_SIZES, "partial_rotary_factor": 0.5}),
    "phi3, long": ("Phi3", {**_GROUPED, "original_max_position_embeddings": 48, **_rope("longrope", **_LONG)}),
    "opt": ("OPT", _OPT),
    "opt, projected embeddings": ("OPT", {**_OPT, "word_embed_proj_dim": 8}),
    "gemma": ("Gemma", {**_GROUPED, "head_dim": 4}),
    "gemma2, window": ("Gemma2", {**_GROUPED, "head_dim": 4, "sliding_window": 48, "query_pre_attn_scalar": 4}),
    "bloom": ("Bloom", {"hidden_size": 16, "n_layer": 2, "n_head": 4, **_TOKENS}),
    "stablelm": ("StableLm", _GROUPED),
}  # fmt: skip
CONVERTED = (
    "gpt2", "gpt2, scale by layer", "gpt2, no scale", "gpt2, epsilon", "gpt2, relu, wide MLP", "neox",
    "neox, in sequence", "neox, no biases of attention", "llama", "llama, linear", "llama, 3.1", "llama, dynamic",
    "llama, biases of attention", "llama, wide heads", "mistral", "mistral, window", "mistral, linear", "qwen2",
    "qwen2, window from layer 1",
)  # fmt: skip
TOKENS = torch.arange(2 * 64).view(2, 64) % (N_TOKENS - 3) + 3


def made(case: str):
    """A model of the transformers library, its weights far from zero."""
    kind, options = CASES[case]
    config = getattr(transformers, f"{kind}Config")(**options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = getattr(transformers, "BloomForCausalLM" if kind == "Bloom" else _class_of(kind))(config)
    return perturbed(model.eval(), scale=0.2)


def _class_of(kind: str) -> str:
    return f"{kind}LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM"


def written(model, place):
    """A directory of Hugging Face's."""
    model.save_pretrained(place)
    tokenizer().save_pretrained(place)
    return place


@torch.no_grad()
@pytest.mark.parametrize("case", CASES)
def test_a_model_that_loads_computes_what_its_source_computes(case, tmp_path):
    theirs = made(case)
    written(theirs, tmp_path)
    if case not in CONVERTED and (refusal := refused(tmp_path)):
        assert refusal.startswith(
            f"source {tmp_path}: nothing converts a {type(theirs).__name__} to a HookedTransformer"
        )
        assert refusal.endswith("; bridged_language_model may take it as it is")
        assert "\n" not in refusal
        return
    expected = theirs(TOKENS).logits.log_softmax(-1)
    assert (ms.language_model(tmp_path)(TOKENS).log_softmax(-1) - expected).abs().max() < 1e-3
    assert expected.std() > 0.1


def refused(place) -> str | None:
    """The refusal of a model that is not loaded."""
    try:
        ms.language_model(place)
    except InputError as error:
        return str(error)
    return None


def test_what_goes_wrong_without_a_word_is_refused(tmp_path, monkeypatch):
    """A conversion that forgets something that no list knows of."""
    place, built = save("gpt2", tmp_path), conversion._built

    def forgetful(config, state, words):
        return built(config, {name: value * (name != "blocks.1.attn.b_Q") for name, value in state.items()}, words)

    monkeypatch.setattr(conversion, "_built", forgetful)
    with pytest.raises(InputError, match=r"log-probabilities differ by up to 0\.\d+, 0\.001 allowed\).*n_embd=16"):
        ms.language_model(place)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_compared_in_float32_and_keeps_its_weights(dtype, tmp_path, monkeypatch):
    place, number = save("llama", tmp_path), getattr(torch, dtype)
    seen = []
    compared = conversion.largest_difference

    def noted(theirs, model, tokens):
        seen.append((theirs.dtype, model.W_E.dtype, compared(theirs, model, tokens)))
        return seen[-1][2]

    monkeypatch.setattr(conversion, "largest_difference", noted)
    model = ms.language_model(place, dtype=dtype)
    assert seen[0][:2] == (torch.float32, torch.float32)
    assert seen[0][2] < 1e-4
    assert (model.cfg.dtype, model.W_E.dtype) == (number, number)
    assert model.W_E.equal(ms.language_model(place).W_E.to(number))
    monkeypatch.setattr(conversion, "LARGE", 10)
    as_it_is = ms.language_model(place, dtype=dtype)
    assert seen[-1][:2] == (number, number)
    assert seen[-1][2] < conversion.tolerance(number) / 4
    assert all(value.equal(as_it_is.state_dict()[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("window", "n_ctx", "shape"),
    [(48, 1024, (2, 64)), (4096, 1024, (2, 24)), (4096, 8192, (1, 4112)), (None, 16, (2, 16)), (1010, 1024, (1, 1024))],
)
def test_sequences_go_beyond_a_window_that_closes(window, n_ctx, shape):
    config = transformers.MistralConfig(**{**_GROUPED, "max_position_embeddings": 32768, "sliding_window": window})
    theirs = type("Theirs", (), {"config": config})
    found = conversion.tokens_to_compare(theirs, tokenizer(), n_ctx)
    assert tuple(found.shape) == shape
    assert found.min() >= 3, "no special tokens"


def test_a_bridge_that_cannot_be_made_is_refused_in_one_line(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise AttributeError("no such\nattribute")

    monkeypatch.setattr(conversion.TransformerBridge, "boot_transformers", fails)
    with pytest.raises(
        InputError, match=r"bridges no such GPT2LMHeadModel \(AttributeError: no such attribute\)"
    ) as found:
        bridged_language_model(save("gpt2", tmp_path))
    assert isinstance(found.value.__cause__, AttributeError)


def test_files_that_hold_something_else_are_refused_in_one_line(tmp_path):
    (save("gpt2", tmp_path) / "model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(InputError, match="cannot be read: SafetensorError") as found:
        ms.language_model(tmp_path)
    assert "\n" not in str(found.value)
