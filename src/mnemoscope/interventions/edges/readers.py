"""What readers make of a change of their input: the residual stream after them.

Heads of one layer normalise the same stream, so each change of it is normalised once. A head through q, k or v attends
anew with that one changed; what its z has changed by, W_O carries to the stream. An MLP acts anew; at the logits the
change itself arrives.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core.edge import Through
from mnemoscope.core.site import Kind
from mnemoscope.interventions.patching.changes import entry
from mnemoscope.interventions.patching.packed import Layer
from mnemoscope.interventions.patching.through_stream import Stream


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Changed inputs of the readers of one layer.

    Attributes:
        run: The run that is changed.
        layer: Number of the block.
        start: The first position that changes.
        seen: Positions, none earlier, at which it matters what the readers write.
        change: What several writers add to the stream, from `start` on.
    """

    run: Stream
    layer: int
    start: int
    seen: Int[Tensor, " seen"]
    change: Float[Tensor, "writer prompt suffix d_model"]

    def at_logits(self, rows: Sequence[int]) -> Float[Tensor, "edge prompt seen d_model"]:
        """The stream that some writers change after the last block."""
        return self._stream("resid_post") + self._seen(self.change[list(rows)])

    def after_mlp(self, rows: Sequence[int]) -> Float[Tensor, "edge prompt seen d_model"]:
        """The stream after the MLP whose input some writers change."""
        stream, mlp = self._stream("resid_mid"), self._block.mlp
        assert mlp is not None
        changed = stream + self._seen(self.change[list(rows)])
        return mlp(changed.flatten(0, 2)).view_as(changed) + stream

    def after_heads(
        self,
        changes: Float[Tensor, "writer prompt head_index seen d_head"],
        rows: Sequence[int],
        heads: Sequence[int | None],
    ) -> Float[Tensor, "edge prompt seen d_model"]:
        """The stream after attention where one head each, read by one writer each, has changed its z."""
        stream = self._stream(entry(self.run.weights, "z", self.layer)[1][0])
        each = stream.flatten(0, 1).expand(len(rows), -1, -1)
        z = changes[list(rows), :, list(heads)].flatten(1, 2)
        return torch.baddbmm(each, z, self._block.w_o[list(heads)]).unflatten(1, stream.shape[:2])

    def z_changes(self, through: Through | None) -> Float[Tensor, "writer prompt head_index seen d_head"]:
        """The change of every head's z when what writers change is read through one input, or (None) through all."""
        block, past = self._block, self.run.past
        n_heads, half = len(block.w_o), block.w_kv.shape[1] // 2
        q, z = (self._stream(kind).transpose(1, 2)[None] for kind in ("q", "z"))
        q, k, v = q / block.scale, past.keys[self.layer][None], past.values[self.layer][None]
        if through in ("q", None):
            q = _projected(self._seen(self._normed), block.w_q, block.b_q, n_heads)
        if through in ("k", None):
            k = _prolonged(k, _projected(self._normed, block.w_kv[:, :half], block.b_kv[:half], n_heads))
        if through in ("v", None):
            v = _prolonged(v, _projected(self._normed, block.w_kv[:, half:], block.b_kv[half:], n_heads))
        future = torch.arange(k.shape[-2], device=k.device) > self.seen[:, None]
        pattern = (q @ k.mT).masked_fill_(future, -math.inf).softmax(-1)
        return pattern @ v - z

    @property
    def _block(self) -> Layer:
        return self.run.weights.layers[self.layer]

    @cached_property
    def _normed(self) -> Float[Tensor, "writer prompt suffix d_model"]:
        changed = self.run.base["resid_pre", self.layer][:, self.start :] + self.change
        return self._block.ln1(changed.flatten(0, 2)).view_as(changed)

    def _stream(self, kind: Kind) -> Float[Tensor, "prompt seen *width"]:
        return self.run.base[kind, self.layer].index_select(1, self.seen)

    def _seen(self, suffix: Float[Tensor, "some prompt suffix d_model"]) -> Float[Tensor, "some prompt seen d_model"]:
        return suffix.index_select(2, self.seen - self.start)


def _projected(
    normed: Float[Tensor, "writer prompt some d_model"],
    w: Float[Tensor, "d_model all_heads"],
    b: Float[Tensor, " all_heads"],
    n_heads: int,
) -> Float[Tensor, "writer prompt head_index some d_head"]:
    rows = torch.addmm(b, normed.flatten(0, 2), w).unflatten(0, normed.shape[:3])
    return rearrange(rows, "writer prompt some (head d_head) -> writer prompt head some d_head", head=n_heads)


def _prolonged(
    past: Float[Tensor, "1 prompt head_index pos d_head"], own: Float[Tensor, "writer prompt head_index suffix d_head"]
) -> Float[Tensor, "writer prompt head_index pos d_head"]:
    """Each writer's own keys (or values) after those before it changes anything."""
    before = past[..., : past.shape[-2] - own.shape[-2], :]
    return torch.cat((before.expand(len(own), -1, -1, -1, -1), own), -2)
