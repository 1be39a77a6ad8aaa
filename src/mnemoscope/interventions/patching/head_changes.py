"""How the output z of one head changes when something inside the head is patched."""

import math
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope.core.site import ATTENTION, Kind
from mnemoscope.interventions.patching.packed import Layer
from mnemoscope.interventions.patching.runs import Run

_READS: Mapping[Kind, tuple[Kind, ...]] = {
    "q": ("q", "k", "v"),
    "k": ("q", "k", "v"),
    "v": ("v", "pattern"),
    "pattern": ("pattern", "v"),
    "scores": ("scores", "v"),
}
LASTING: tuple[Kind, ...] = ("k", "v")
"""Kinds that, patched at one position, act at all later ones of the same layer."""

Head = Mapping[Kind, Tensor]
"""Activations of one head: `prompt pos d_head`, or `prompt query key`."""


def reads(kind: Kind) -> tuple[Kind, ...]:
    """What has to be known of a run to patch a kind of activation."""
    return _READS.get(kind, (kind,))


def of_head(run: Run, kind: Kind, layer: int, head: int) -> Head:
    """What has to be known of one head."""
    return {name: run[name, layer].select(1 if name in ATTENTION else 2, head) for name in reads(kind)}


def z_change(
    kind: Kind, source: Head, base: Head, patched: slice, keys: Sequence[int] | None, layer: Layer
) -> Float[Tensor, "cell prompt changed d_head"]:
    """The change of z.

    Args:
        kind: What is patched.
        source: Where it comes from.
        base: Where it goes.
        patched: At which positions or queries: one, or all from one on.
        keys: One cell a key, only the attention to which is patched; None: one cell, all keys.
        layer: The scale of attention.

    Returns:
        At the patched positions; for k and v at all from the first patched one on.
    """
    later = slice(patched.start, None)
    if kind == "z":
        return (source["z"] - base["z"])[None, :, patched]
    if kind == "v":
        difference = source["v"][:, patched] - base["v"][:, patched]
        return (base["pattern"][:, later, patched] @ difference)[None]
    if kind == "q":
        return (_z(source["q"], base["k"], base["v"], patched, layer) - _z(*_qkv(base), patched, layer))[None]
    if kind == "k":
        k = base["k"].clone()
        k[:, patched] = source["k"][:, patched]
        return (_z(base["q"], k, base["v"], later, layer) - _z(*_qkv(base), later, layer))[None]
    new, old = source[kind][None, :, patched], base[kind][None, :, patched]
    if keys is not None:
        at = torch.tensor(keys, device=new.device)
        chosen = torch.arange(new.shape[-1], device=new.device) == at[:, None, None, None]
        new = torch.where(chosen, new, old)
    if kind == "scores":
        new, old = new.softmax(-1), old.softmax(-1)
    return (new - old) @ base["v"]


def _qkv(head: Head) -> tuple[Tensor, Tensor, Tensor]:
    return head["q"], head["k"], head["v"]


def _z(
    q: Float[Tensor, "prompt pos d_head"],
    k: Float[Tensor, "prompt pos d_head"],
    v: Float[Tensor, "prompt pos d_head"],
    queries: slice,
    layer: Layer,
) -> Float[Tensor, "prompt query d_head"]:
    n_pos = k.shape[1]
    future = torch.ones(n_pos, n_pos, dtype=torch.bool, device=k.device).triu(1)[queries]
    scores = (q[:, queries] @ k.mT / layer.scale).masked_fill(future, -math.inf)
    return scores.softmax(-1) @ v
