"""Tiny models with random weights whose tokenizer has digits, line breaks and pieces of up to three letters."""

from functools import cache
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

import mnemoscope as ms
from mnemoscope.systems.retrieval_prompts import questions as words
from mnemoscope.systems.retrieval_prompts.questions import FORMULATIONS, questions
from mnemoscope.systems.retrieval_prompts.reading import CUE

SPECIAL = ("<unk>", "<bos>", "<end>")
PIECE = r" ?[A-Za-z]{1,3}|\d|\n|[^\w\n]"
TEMPLATE = (
    "{% for message in messages %}{{ '<bos>' + message['role'] + '\n' + message['content'] + '<end>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<bos>assistant\n' }}{% endif %}"
)


def tokenizer(*, chat: bool = True) -> PreTrainedTokenizerFast:
    """Texts come back from its tokens as they were."""
    cutter = pre_tokenizers.Split(Regex(PIECE), "isolated")
    texts = [question.text for name in FORMULATIONS for question in questions(name, 20)]
    texts += [f" {name}" for name in (*words.NAMES, *words.CITIES, *words.COUNTRIES)]
    texts += [*words.NAMES, *words.CITIES, *words.COUNTRIES, *"0123456789", "user\n", "assistant\n", CUE, ". "]
    pieces = {piece for text in texts for piece, _ in cutter.pre_tokenize_str(text)}
    vocab = {word: number for number, word in enumerate((*SPECIAL, *sorted(pieces)))}
    whole = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    whole.pre_tokenizer, whole.decoder = cutter, decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=whole, unk_token="<unk>", bos_token="<bos>", eos_token="<end>", pad_token="<end>"
    )
    if chat:
        fast.chat_template = TEMPLATE
    return fast


_SIZES = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}


def _transformer(kind: str, n_tokens: int):
    if kind == "gpt2":
        return GPT2LMHeadModel(
            GPT2Config(n_embd=16, n_layer=2, n_head=4, n_positions=1024, vocab_size=n_tokens, **_SIZES)
        )
    sizes = {
        "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "max_position_embeddings": 1024, "vocab_size": n_tokens, **_SIZES,
    }  # fmt: skip
    if kind == "pythia":
        return GPTNeoXForCausalLM(GPTNeoXConfig(rotary_pct=0.5, use_parallel_residual=True, **sizes))
    return LlamaForCausalLM(LlamaConfig(num_key_value_heads=2, **sizes))


KINDS = ("gpt2", "pythia", "llama")


def save(kind: str, directory: Path, *, chat: bool = True) -> Path:
    """A directory of Hugging Face's; the same weights at every call."""
    read = tokenizer(chat=chat)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model = _transformer(kind, len(read)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(directory)
    read.save_pretrained(directory)
    return directory


@cache
def _kept(kind: str, chat: bool, directory: Path):
    return ms.language_model(save(kind, directory / f"{kind}-{chat}", chat=chat))


def loaded(kind: str, directory: Path, *, chat: bool = True):
    """The model of `save`, through the loading code."""
    return _kept(kind, chat, directory)
