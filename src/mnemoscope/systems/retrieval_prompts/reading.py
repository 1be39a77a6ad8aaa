"""Questions as tokens, prompts that a model reads once, and what it makes of continuations.

Questions as the tokens that a model reads, and their acceptable answers as the tokens that would follow.

A model with a chat template gets the question as the user's message, and answers as the assistant. Any other reads the
question, a line break and `Answer:`, after the token that begins a text if it has one; an answer then begins with a
space.

Prompts that a model reads once, and what it makes of continuations.

Keys and values of a prompt are kept (TransformerLens's key-value cache), so that acceptable answers and sampled tokens
cost a pass over their own tokens only. Prompts are padded on the right; what is padding is masked, and a continuation
takes the positions after the last token of its own prompt. Only positions that are read are unembedded.

Limit: a `HookedTransformer` with causal attention and learned or rotary positions. Relative positions (ALiBi) would
count the padding, and a `TransformerBridge` keeps its cache in another way.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope import InputError
from mnemoscope.models import HookedTransformer, TransformerLensKeyValueCache, TransformerLensKeyValueCacheEntry
from mnemoscope.systems.retrieval_prompts.questions import Question

CUE = "\nAnswer:"
"""What follows the question where there is no chat template."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A question in tokens."""

    question: Question
    prompt: tuple[int, ...]
    answers: tuple[tuple[int, ...], ...]
    """Tokens of each acceptable answer, as they follow the prompt."""

    @property
    def longest(self) -> int:
        """Tokens of the longest acceptable answer."""
        return max(map(len, self.answers))


def takes_chat(tokenizer: Any) -> bool:
    """True where a tokenizer has a chat template."""
    return bool(getattr(tokenizer, "chat_template", None))


def ask(tokenizer: Any, questions: Sequence[Question], *, chat: bool | None = None) -> tuple[Asked, ...]:
    """Questions in tokens, through the chat template or not; none: if there is one.

    Raises:
        InputError: A chat template is asked for and there is none, or two acceptable answers have the same tokens.
    """
    chat = takes_chat(tokenizer) if chat is None else chat
    if chat and not takes_chat(tokenizer):
        raise InputError("chat needs a tokenizer with a chat template, and this one has none; leave it out")
    return tuple(_asked(tokenizer, question, chat) for question in questions)


def _asked(tokenizer: Any, question: Question, chat: bool) -> Asked:
    if chat:
        message = [{"role": "user", "content": question.text}]
        text, front = tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False), []
    else:
        text, front = question.text + CUE, [tokenizer.bos_token_id]
    prompt = _tokens(tokenizer, text)
    answers = tuple(
        _following(tokenizer, text, prompt, answer if chat else f" {answer}") for answer in question.acceptable
    )
    if len(set(answers)) < len(answers):
        raise InputError(
            f"the acceptable answers {', '.join(question.acceptable)} must have different tokens; the tokenizer does "
            "not tell them apart"
        )
    beginning = [token for token in front if token is not None]
    return Asked(question=question, prompt=(*beginning, *prompt), answers=answers)


def _following(tokenizer: Any, text: str, prompt: list[int], answer: str) -> tuple[int, ...]:
    """Tokens of an answer after a text; alone, if together they would change the tokens of the text."""
    whole = _tokens(tokenizer, text + answer)
    n = len(prompt)
    return tuple(whole[n:] if whole[:n] == prompt and len(whole) > n else _tokens(tokenizer, answer))


def _tokens(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


MAX_BYTES = {"cpu": 2**27, "cuda": 2**32}
"""Default budget by kind of device: on a processor larger batches gain nothing."""
POSITIONS = ("standard", "rotary")
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, eq=False)
class Read:
    """Prompts that were read: the logits of the next token after each, and the cache of their keys and values."""

    logits: Float[Tensor, "prompt d_vocab"]
    cache: TransformerLensKeyValueCache


def check_model(model: Any) -> None:
    """Refuse, with an `InputError`, a model whose keys and values cannot be kept.

    It must be a `HookedTransformer` with causal attention, positions of one of `POSITIONS`, and a tokenizer.
    """
    if not isinstance(model, HookedTransformer):
        raise InputError(f"model must be a HookedTransformer, as ms.language_model gives; got {type(model).__name__}")
    kind = model.cfg.positional_embedding_type
    if kind not in POSITIONS or model.cfg.attention_dir != "causal":
        raise InputError(
            f"model must have causal attention and positions of kind {' or '.join(POSITIONS)}, since prompts are "
            f"padded; got {model.cfg.attention_dir} attention, positions of kind {kind}"
        )
    if model.tokenizer is None:
        raise InputError("model must have a tokenizer; ms.language_model loads both")


def check_length(model: HookedTransformer, n_tokens: int) -> None:
    """Refuse prompts that are too long with their answers; the `InputError` says how many tokens it takes."""
    if n_tokens > model.cfg.n_ctx:
        raise InputError(
            f"the longest prompt with its answer takes {n_tokens} tokens and the model reads {model.cfg.n_ctx}; load "
            f"it with n_ctx={n_tokens}, or ask easier questions"
        )


@torch.no_grad()
def read(model: HookedTransformer, prompts: Sequence[Sequence[int]]) -> Read:
    """Read prompts, whose lengths may differ; the model has causal attention."""
    device = model.W_E.device
    tokens, real = _padded(prompts, device)
    cache = TransformerLensKeyValueCache.init_cache(model.cfg, device, len(prompts))
    residual = _residual(model, tokens, real, cache)
    last = real.sum(1) - 1
    return Read(logits=_logits(model, residual[torch.arange(len(prompts), device=device), last]), cache=cache)


@torch.no_grad()
def go_on(
    model: HookedTransformer, cache: TransformerLensKeyValueCache, continuations: Sequence[Sequence[int]]
) -> Float[Tensor, "prompt new d_vocab"]:
    """Logits after every token of continuations, a row for each prompt of a cache; a cache that is not frozen grows."""
    tokens, real = _padded(continuations, model.W_E.device)
    return _logits(model, _residual(model, tokens, real, cache))


def rows_of(
    cache: TransformerLensKeyValueCache, rows: Sequence[int], *, frozen: bool = False
) -> TransformerLensKeyValueCache:
    """A copy of some rows of a cache, which may be repeated."""
    index = torch.tensor(rows, device=cache.previous_attention_mask.device)
    entries = [
        TransformerLensKeyValueCacheEntry(
            past_keys=entry.past_keys[index], past_values=entry.past_values[index], frozen=frozen
        )
        for entry in cache.entries
    ]
    mask = cache.previous_attention_mask[index]
    return TransformerLensKeyValueCache(entries=entries, previous_attention_mask=mask, frozen=frozen)


def row_bytes(model: HookedTransformer, n_tokens: int, n_new: int | None = None) -> int:
    """The size of a row with so many tokens: keys and values, and the activations of a layer while it is read.

    `n_new` tokens are read after those in the cache; none: the tokens themselves are read.
    """
    cfg = model.cfg
    n_read, n_logits = (n_tokens, 1) if n_new is None else (n_new, n_new)
    n_heads = cfg.n_key_value_heads or cfg.n_heads
    kept = 2 * (cfg.n_layers + 2) * n_heads * cfg.d_head * n_tokens
    layer = n_read * (8 * cfg.d_model + 4 * (cfg.d_mlp or 0) + 4 * cfg.n_heads * n_tokens)
    return (kept + layer + 2 * cfg.n_heads * cfg.d_head * n_tokens + 3 * n_logits * cfg.d_vocab) * cfg.dtype.itemsize


def batches(items: Sequence[_T], sizes: Sequence[int], max_bytes: int) -> Iterator[list[_T]]:
    """Groups of items that keep to `max_bytes` when each takes what the largest of its group does; at least one each.

    Items come in groups of like size from the start, such as sorted by length.
    """
    group: list[_T] = []
    largest = 0
    for item, size in zip(items, sizes, strict=True):
        largest = max(largest, size)
        if group and largest * (len(group) + 1) > max_bytes:
            yield group
            group, largest = [], size
        group.append(item)
    if group:
        yield group


def budget(model: HookedTransformer, max_bytes: int | None) -> int:
    """A byte budget, or the default one of the model's device."""
    return MAX_BYTES.get(model.W_E.device.type, MAX_BYTES["cpu"]) if max_bytes is None else max_bytes


def _padded(
    rows: Sequence[Sequence[int]], device: torch.device
) -> tuple[Int[Tensor, "row pos"], Int[Tensor, "row pos"]]:
    """Rows as one tensor, padded on the right, and 1 where a token is real."""
    n = max(map(len, rows))
    tokens = torch.tensor([[*row, *[0] * (n - len(row))] for row in rows], device=device)
    real = torch.tensor([[1] * len(row) + [0] * (n - len(row)) for row in rows], device=device)
    return tokens, real


def _residual(
    model: HookedTransformer,
    tokens: Int[Tensor, "row pos"],
    real: Int[Tensor, "row pos"],
    cache: TransformerLensKeyValueCache,
) -> Float[Tensor, "row pos d_model"]:
    """The stream after the last layer."""
    return model(tokens, attention_mask=real, past_kv_cache=cache, stop_at_layer=model.cfg.n_layers)


def _logits(model: HookedTransformer, residual: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_vocab"]:
    """Logits from the stream after the last layer."""
    return model(residual, start_at_layer=model.cfg.n_layers)
