"""One layer: attention and an MLP read the residual stream and add to it. `Read` names the outputs that are wanted."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.engine.attention import Attention
from mnemoscope.engine.changes import NONE, Changes
from mnemoscope.engine.mlp import Mlp
from mnemoscope.engine.norms import Norm


@dataclass(frozen=True, kw_only=True)
class Block:
    """One layer: attention and an MLP, in sequence or (`parallel`) reading the same stream, as in GPT-NeoX."""

    ln1: Norm
    attn: Attention | None
    ln2: Norm
    mlp: Mlp | None
    parallel: bool = False

    @property
    def attention(self) -> Attention:
        """The attention of a block that must have one."""
        assert self.attn is not None
        return self.attn

    def __call__(self, stream: Float[Tensor, "*rows pos d_model"], at: Changes) -> Float[Tensor, "*rows pos d_model"]:
        """The stream after the block, at all positions."""
        return self.after_heads(stream, None if self.attn is None else self.attn.z(self.ln1(stream), at=at), at)

    def after_heads(
        self,
        stream: Float[Tensor, "*rows d_model"],
        z: Float[Tensor, "*rows head_index d_head"] | None,
        at: Changes = NONE,
    ) -> Float[Tensor, "*rows d_model"]:
        """The stream after the block, from the stream before it and head outputs z (None without attention)."""
        if self.attn is None or z is None:
            return stream if self.mlp is None else stream + self.mlp(self.ln2(stream))
        mlp = self.mlp
        of_mlp = None if mlp is None else lambda read: mlp(self.ln2(read), at)
        return after_attention(stream, self.attn.written(z), of_mlp, at, parallel=self.parallel)


def after_attention(
    stream: Float[Tensor, "*rows d_model"],
    of_attention: Float[Tensor, "*rows d_model"],
    of_mlp: Callable[[Tensor], Tensor] | None,
    at: Changes,
    *,
    parallel: bool,
) -> Float[Tensor, "*rows d_model"]:
    """The stream after a block, from the stream before it and the contribution of attention.

    `of_mlp` maps a stream to the contribution of the MLP; None: no MLP. Changes go by names within the block.
    """
    of_attention = at("hook_attn_out", of_attention)
    if of_mlp is None:
        return at("hook_resid_post", stream + of_attention)
    if parallel:  # nothing lies between attention and MLP, so there is no hook_resid_mid
        added = at("hook_mlp_out", of_mlp(stream))
        return at("hook_resid_post", stream + of_attention + added)
    stream = at("hook_resid_mid", stream + of_attention)
    return at("hook_resid_post", stream + at("hook_mlp_out", of_mlp(stream)))


@dataclass(frozen=True, kw_only=True)
class Read:
    """Places at which outputs are wanted.

    `columns` are the positions that are wanted in at least one sequence, ascending. If sequences differ, `where` is the
    mask of the places, and outputs are rows, sequence by sequence. None: the places are the same in every sequence.
    """

    columns: Int[Tensor, " read"]
    where: Bool[Tensor, "batch pos"] | None = None

    @staticmethod
    def places(where: Bool[Tensor, "batch pos"]) -> "Read":
        """The places of a mask, which may differ from sequence to sequence."""
        return Read(columns=where.any(0).nonzero()[:, 0], where=where)

    def of(self, x: Float[Tensor, "batch pos *rest"]) -> Float[Tensor, "*read_rest"]:
        """Pick these places from an activation at all positions."""
        return x[:, self.columns] if self.where is None else x[self.where]

    def of_columns(self, x: Float[Tensor, "batch read *rest"]) -> Float[Tensor, "*read_rest"]:
        """Pick these places from an activation at `columns` only."""
        return x if self.where is None else x[self.where[:, self.columns]]
