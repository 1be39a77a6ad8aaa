"""Conversions of language models of our own, against TransformerLens 3's and the models of the transformers library."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM

import mnemoscope as ms
from mnemoscope import InputError
from mnemoscope.models.hooked.config import HookedTransformerConfig
from mnemoscope.models.hooked.transformer import HookedTransformer
from mnemoscope.models.language import conversion, families
from mnemoscope.models.lens import HAS_HOOKED_TRANSFORMER
from tests.language_models import KINDS, N_TOKENS, tokenizer, transformer
from tests.support import perturbed, seeded

_SIZES = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "vocab_size": N_TOKENS,
}  # fmt: skip
_LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
_LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
_LATE = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
OTHERS = {
    "llama 3.1": lambda: LlamaForCausalLM(LlamaConfig(**_SIZES, rope_parameters=_LLAMA3)),
    "llama, own keys": lambda: LlamaForCausalLM(LlamaConfig(**{**_SIZES, "num_key_value_heads": 4})),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**_SIZES, sliding_window=None)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**_SIZES)),
    "llama, linear": lambda: LlamaForCausalLM(LlamaConfig(**_SIZES, rope_parameters=_LINEAR)),
    "llama, biases": lambda: LlamaForCausalLM(LlamaConfig(**_SIZES, attention_bias=True)),
    "llama, wide heads": lambda: LlamaForCausalLM(LlamaConfig(**_SIZES, head_dim=6)),
    "mistral, window": lambda: MistralForCausalLM(MistralConfig(**_SIZES, sliding_window=8)),
    "qwen2, window of layer 1": lambda: Qwen2ForCausalLM(Qwen2Config(**_SIZES, **_LATE)),
}
TOKENS = torch.randint(3, N_TOKENS, (2, 40), generator=seeded())


def made(kind: str):
    if kind in KINDS:
        return transformer(kind)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return perturbed(OTHERS[kind]().eval(), scale=0.2)


def converted(theirs):
    config = HookedTransformerConfig.from_dict({**families.convert_configuration(theirs), "device": "cpu"})
    model = HookedTransformer(config)
    model.load_and_process_state_dict(families.convert_weights(theirs, config), **conversion._AS_THEY_ARE)
    return model


@torch.no_grad()
@pytest.mark.parametrize("kind", [*KINDS, *OTHERS])
def test_logits_are_those_of_hugging_face(kind):
    theirs = made(kind)
    expected = theirs(TOKENS).logits
    assert (converted(theirs)(TOKENS) - expected).abs().max() < 1e-4
    assert expected.std() > 0.1


@torch.no_grad()
@pytest.mark.skipif(not HAS_HOOKED_TRANSFORMER, reason="TransformerLens 4 converts no weights")
@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_logits_are_those_of_transformer_lens_3(kind, tmp_path):
    theirs = made(kind)
    theirs.save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    reference, ours = ms.language_model(tmp_path), converted(theirs)
    state = ours.state_dict()
    assert list(reference.state_dict()) == list(state)
    assert all(value.equal(state[name]) for name, value in reference.state_dict().items())
    assert reference(TOKENS).equal(ours(TOKENS))
    assert reference.cfg.default_prepend_bos == ours.cfg.default_prepend_bos


def test_what_is_not_converted_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(conversion, "HAS_HOOKED_TRANSFORMER", False)
    yarn = {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e4, "original_max_position_embeddings": 32}
    LlamaForCausalLM(LlamaConfig(**_SIZES, rope_parameters=yarn)).save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"nothing converts a \w+ .* \(rotary positions of kind yarn\)") as found:
        ms.language_model(tmp_path)
    assert "\n" not in str(found.value)
