"""Causality: what comes later changes nothing before it, and padding and windows hide what they should."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from mnemoscope.core.protocols import reads_vectors
from mnemoscope.hookcheck.law import Family
from mnemoscope.hookcheck.mutants import Faulty, always
from mnemoscope.interventions.comparison import Comparison
from mnemoscope.interventions.subject import TestSubject

FAMILY = Family(name="causality", analyses=("patch", "attention-entropy"))


def _needs(subject: TestSubject, direction: str, n_pos: int = 2) -> int:
    """The number of positions; the law does not apply to other directions of attention, or to shorter prompts."""
    if subject.cfg.attention_dir != direction:
        subject.skip(f"attention is {subject.cfg.attention_dir}")
    if subject.tokens.shape[1] < n_pos:
        subject.skip(f"prompts have fewer than {n_pos} positions")
    return subject.tokens.shape[1]


def _leaks(good: Any) -> Any:
    """A model whose positions all see the mean of the last stream."""
    return always("resid_post", lambda x: x + 0.01 * x.mean(1, keepdim=True))(good)


@FAMILY.law(
    reason="An effect at a position before the patch would be one of the instrument.",
    mutant=_leaks,
)
def nothing_changes_before_a_patched_position(subject: TestSubject) -> Iterator[Comparison]:
    """With causal attention, a write at one position changes no logits at earlier positions."""
    n = _needs(subject, "causal")
    for kind in ("resid_pre", "attn_out", "mlp_out", "resid_post"):
        for layer in subject.layers_of(kind):
            point, pos = subject.point(kind, layer), n // 2
            new = subject.clean.at[point].clone()
            new[:, pos] = subject.donor.at[point][:, pos]
            run = subject.run(writes={point: new}, reads=())
            yield Comparison(point=point, got=run.logits[:, :pos], wanted=subject.clean.logits[:, :pos])


@FAMILY.law(
    reason="A patch whose effect never leaves its position would make every later position look unimportant.",
    mutant=always("pattern", lambda pattern: torch.diag_embed(pattern.sum(-1))),
)
def a_patched_position_reaches_later_ones(subject: TestSubject) -> Iterator[Comparison]:
    """A write at the first position of the first stream changes the logits at that position and the next."""
    _needs(subject, "causal")
    point = subject.point("resid_pre", 0)
    outputs = [subject.clean.at[subject.point("attn_out", layer)] for layer in subject.layers_of("attn_out")]
    if point not in subject.clean.at or not any(out.any() for out in outputs):
        subject.skip("attention adds nothing, or no run passes resid_pre of block 0")
    new = subject.clean.at[point].clone()
    new[:, 0] += subject.noise(new[:, 0])
    run = subject.run(writes={point: new}, reads=())
    reached = subject.changed(run.logits, subject.clean.logits)[:, :2].double()
    yield Comparison(point=point, got=reached, wanted=torch.ones_like(reached), exact=True)


@FAMILY.law(
    reason="A model that sees later tokens has read the answer.",
    mutant=_leaks,
)
def later_tokens_change_nothing_before(subject: TestSubject) -> Iterator[Comparison]:
    """With causal attention, another last token changes no logits at earlier positions."""
    n = _needs(subject, "causal")
    tokens = subject.tokens.clone()
    tokens[:, -1] = subject.donors[:, -1]
    run = subject.run(tokens, reads=())
    yield Comparison(point="logits", got=run.logits[:, : n - 1], wanted=subject.clean.logits[:, : n - 1])


@FAMILY.law(
    reason="Prompts of unequal lengths are compared; their length alone may not change what is predicted.",
    mutant=lambda good: Faulty(good, output=lambda logits: logits * (1 + 0.01 * logits.shape[1])),
)
def a_prefix_gives_the_same_logits(subject: TestSubject) -> Iterator[Comparison]:
    """With causal attention, a prompt that is cut short gives the logits of the whole prompt up to there."""
    n = _needs(subject, "causal")
    for length in {1, n // 2, n - 1}:
        short = subject.run(subject.tokens[:, :length], reads=())
        yield Comparison(point="logits", got=short.logits, wanted=subject.clean.logits[:, :length])


@FAMILY.law(
    reason="A pattern is read as which earlier token is attended to.",
    mutant=always("pattern", lambda pattern: torch.ones_like(pattern) / pattern.shape[-1]),
)
def later_keys_get_no_attention(subject: TestSubject) -> Iterator[Comparison]:
    """With causal attention, a query gives no weight to keys after it."""
    _needs(subject, "causal")
    for layer in subject.require("pattern"):
        point = subject.point("pattern", layer)
        pattern = subject.clean.at[point]
        yield Comparison(point=point, got=pattern, wanted=pattern.tril(), exact=True)


@FAMILY.law(
    reason="The first position is the control of head scores: it can attend to itself only.",
    mutant=always("z", lambda z: torch.cat((z[:, :1] * 1.1, z[:, 1:]), 1)),
)
def the_first_position_sees_itself(subject: TestSubject) -> Iterator[Comparison]:
    """With causal attention, z at the first position is the values there, times the only weight of its pattern."""
    _needs(subject, "causal", 1)
    for layer in subject.require("v", "z", "pattern"):
        v, z, pattern = (subject.clean.at[subject.point(kind, layer)] for kind in ("v", "z", "pattern"))
        own = v.repeat_interleave(z.shape[2] // v.shape[2], 2)[:, 0] * pattern[:, :, 0, 0, None]
        yield Comparison(point=subject.point("z", layer), got=z[:, 0], wanted=own)


@FAMILY.law(
    reason="In a bidirectional model a patch reaches positions before it; sweeps that skip these miss effects.",
    mutant=always("pattern", lambda pattern: pattern.tril() / pattern.tril().sum(-1, keepdim=True)),
)
def bidirectional_attention_reaches_back(subject: TestSubject) -> Iterator[Comparison]:
    """With bidirectional attention, another last token changes the logits at the first position."""
    n = _needs(subject, "bidirectional")
    tokens = subject.tokens.clone()
    other = (tokens[:, -1] + 1) if reads_vectors(subject.model) else (tokens[:, -1] + 1) % subject.cfg.d_vocab
    tokens[:, -1] = other
    reached = subject.changed(subject.run(tokens, reads=()).logits, subject.clean.logits)[:, : n - 1].double()
    yield Comparison(point="logits", got=reached, wanted=torch.ones_like(reached), exact=True)


@FAMILY.law(
    reason="Conversions drop windows without a word; long prompts then give other logits.",
    mutant=always("pattern", lambda pattern: torch.ones_like(pattern).tril() / pattern.shape[-1]),
)
def windows_hide_what_is_far(subject: TestSubject) -> Iterator[Comparison]:
    """A layer with a window gives no weight to keys that are as far back as the window is long, or further."""
    cfg = subject.cfg
    window = getattr(cfg, "window_size", None)
    if not getattr(cfg, "use_local_attn", False) or not window:
        subject.skip("no layer has a window")
    if window >= _needs(subject, "causal"):
        subject.skip(f"the window of {window} positions is as long as the prompts")
    local = [layer for layer in subject.require("pattern") if cfg.attn_types[layer] == "local"]
    for layer in local:
        point = subject.point("pattern", layer)
        pattern = subject.clean.at[point]
        yield Comparison(point=point, got=pattern.tril(-window), wanted=torch.zeros_like(pattern), exact=True)


def _padded(subject: TestSubject, left: bool) -> Iterator[Comparison]:
    n = _needs(subject, "causal", 3)
    if reads_vectors(subject.model):
        subject.skip("vectors are not padded")
    tokens = subject.tokens[:, : n - 2]
    filler = subject.donors[:, :2]
    whole = torch.cat((filler, tokens) if left else (tokens, filler), 1)
    mask = torch.ones_like(whole)
    mask[:, slice(0, 2) if left else slice(n - 2, None)] = 0
    padded = subject.run(whole, reads=(), attention_mask=mask).logits
    alone = subject.run(tokens, reads=()).logits
    yield Comparison(point="logits", got=padded[:, 2:] if left else padded[:, : n - 2], wanted=alone)


class _IgnoresMask(Faulty):
    """The attention mask is dropped."""

    def run_with_hooks(self, inputs: Tensor, fwd_hooks: Any = (), **options: Any) -> Tensor:
        options.pop("attention_mask", None)
        return super().run_with_hooks(inputs, fwd_hooks=fwd_hooks, **options)


class _CountsPadding(Faulty):
    """Logits at positions that are not hidden depend on how many are."""

    def run_with_hooks(self, inputs: Tensor, fwd_hooks: Any = (), **options: Any) -> Tensor:
        logits, mask = super().run_with_hooks(inputs, fwd_hooks=fwd_hooks, **options), options.get("attention_mask")
        return logits if mask is None else logits * (1 + 0.01 * int((mask == 0).sum()))


@FAMILY.law(
    reason="Batches of prompts of unequal lengths are padded; the padding may not be seen.",
    mutant=_CountsPadding,
)
def right_padding_changes_nothing(subject: TestSubject) -> Iterator[Comparison]:
    """A prompt with tokens after it that the attention mask hides gives the logits of the prompt alone."""
    yield from _padded(subject, left=False)


@FAMILY.law(
    reason="With padding on the left every position moves; masks and positions must follow.",
    mutant=_IgnoresMask,
    threads=("nnsight #722",),
)
def left_padding_changes_nothing(subject: TestSubject) -> Iterator[Comparison]:
    """A prompt with tokens before it that the attention mask hides gives the logits of the prompt alone."""
    yield from _padded(subject, left=True)
