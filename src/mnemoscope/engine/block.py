"""One layer: attention and an MLP that read the residual stream and add to it; and where outputs are wanted."""

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
    """One layer.

    Attributes:
        ln1: Before attention.
        attn: Attention; none: it adds nothing.
        ln2: Before the MLP.
        mlp: The MLP; none: the block has no MLP.
        parallel: Whether attention and MLP read the same stream.
    """

    ln1: Norm
    attn: Attention | None
    ln2: Norm
    mlp: Mlp | None
    parallel: bool = False

    @property
    def attention(self) -> Attention:
        """The attention, in a block that has one."""
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
        """The stream after the block, from the stream before it and z."""
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
    """The stream after a block.

    Args:
        stream: Before it.
        of_attention: What attention adds.
        of_mlp: From a stream to what the MLP adds to it; none: there is no MLP.
        at: Changes, by names within the block.
        parallel: Whether the MLP reads the stream before the block.
    """
    of_attention = at("hook_attn_out", of_attention)
    if of_mlp is None:
        return at("hook_resid_post", stream + of_attention)
    if parallel:
        added = at("hook_mlp_out", of_mlp(stream))
        return at("hook_resid_post", stream + of_attention + added)
    stream = at("hook_resid_mid", stream + of_attention)
    return at("hook_resid_post", stream + at("hook_mlp_out", of_mlp(stream)))


@dataclass(frozen=True, kw_only=True)
class Read:
    """Places at which outputs are wanted.

    Attributes:
        columns: Positions at which they are wanted in some sequence, ascending.
        where: The places in all positions, if sequences differ; outputs then are rows, sequence by sequence.
    """

    columns: Int[Tensor, " read"]
    where: Bool[Tensor, "batch pos"] | None = None

    @staticmethod
    def places(where: Bool[Tensor, "batch pos"]) -> "Read":
        """At some places of each sequence."""
        return Read(columns=where.any(0).nonzero()[:, 0], where=where)

    def of(self, x: Float[Tensor, "batch pos *rest"]) -> Float[Tensor, "*read_rest"]:
        """Pick these places from an activation of all positions."""
        return x[:, self.columns] if self.where is None else x[self.where]

    def of_columns(self, x: Float[Tensor, "batch read *rest"]) -> Float[Tensor, "*read_rest"]:
        """Pick these places from an activation of the columns."""
        return x if self.where is None else x[self.where[:, self.columns]]
