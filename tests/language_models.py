"""Tiny language models with random weights, saved to disk as Hugging Face does it, with a tokenizer of whole words."""

from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

TEXT = """When John and Mary went to the store , gave a drink Paul Anna her him . The capital of France Italy is
Paris Rome cat dog sat on mat one two three four five six"""
WORDS = list(dict.fromkeys(TEXT.split()))
SPECIAL = ("<unk>", "<bos>", "<pad>")


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a word; what is unknown is `<unk>`, and spaces belong to no token."""
    vocab = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
    whole = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    whole.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=whole, unk_token="<unk>", bos_token="<bos>", eos_token="<bos>", pad_token="<pad>"
    )


N_TOKENS = len(SPECIAL) + len(WORDS)
_SIZES: dict[str, Any] = {"vocab_size": N_TOKENS, "bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 2}


def _gpt2() -> GPT2LMHeadModel:
    """Learned positions, LayerNorm, biases."""
    return GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=2, n_head=4, n_positions=64, **_SIZES))


def _pythia() -> GPTNeoXForCausalLM:
    """Rotary positions on a part of each head, attention and MLP in parallel."""
    config = GPTNeoXConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, rotary_pct=0.5,
        max_position_embeddings=64, use_parallel_residual=True, **_SIZES,
    )  # fmt: skip
    return GPTNeoXForCausalLM(config)


def _llama() -> LlamaForCausalLM:
    """Rotary positions, RMSNorm, a gated MLP, four heads on two key/value heads."""
    config = LlamaConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64, **_SIZES,
    )  # fmt: skip
    return LlamaForCausalLM(config)


KINDS = {"gpt2": _gpt2, "pythia": _pythia, "llama": _llama}


@cache
def transformer(kind: str, seed: int = 0):
    """A model of the transformers library whose weights are far from zero; the same at every call."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = KINDS[kind]().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def save(kind: str, directory: Path, seed: int = 0) -> Path:
    """A directory of Hugging Face's."""
    transformer(kind, seed).save_pretrained(directory)
    tokenizer().save_pretrained(directory)
    return directory
