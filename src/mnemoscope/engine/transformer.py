"""A decoder-only transformer as a function: from inputs to logits, or from a changed residual stream on.

    stream = W_E[token] + W_pos[position]
    in each block: stream += attention(norm(stream)), then stream += mlp(norm(stream))   (parallel: both read the same)
    logits = norm(stream) W_U + b_U

A change anywhere alters the stream at one *point* (before, in the middle of or after a block) from one position on.
What follows needs neither the layers before that point nor the positions before that one: those keep the keys and
values of the run that is changed. Points are numbered along the stream: 2 l before block l, 2 l + 1 between its
attention and its MLP, 2 n_layers after the last block.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from mnemoscope.core.batch import Inputs
from mnemoscope.engine import lookup
from mnemoscope.engine.attention import Past
from mnemoscope.engine.block import Block, Read
from mnemoscope.engine.changes import AFTER_HEADS, NONE, OF_QUERIES, Changes
from mnemoscope.engine.mlp import projected
from mnemoscope.engine.norms import Norm


@dataclass(frozen=True, kw_only=True)
class Start:
    """A point from which a run can be resumed: the stream before a block."""

    layer: int
    stream: Float[Tensor, "*rows d_model"]


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """The weights of a model.

    Attributes:
        w_e: The embedding, or what reads vectors.
        w_pos: Positions that are added to the stream; none: there are no such.
        blocks: The layers.
        ln_final: Before the unembedding.
        w_u: The unembedding.
        b_u: Its bias.
        logit_cap: Logits x become cap · tanh(x / cap); none: they stay.
        silent: A token whose embedding is zero, which stands at the end of every sequence; none: there is no such.
    """

    w_e: Float[Tensor, "d_input d_model"]
    w_pos: Float[Tensor, "n_ctx d_model"] | None
    blocks: tuple[Block, ...]
    ln_final: Norm
    w_u: Float[Tensor, "d_model d_output"]
    b_u: Float[Tensor, " d_output"]
    logit_cap: float | None = None
    silent: int | None = None

    @property
    def has_mlp(self) -> bool:
        """True if blocks have an MLP."""
        return self.blocks[0].mlp is not None

    @property
    def has_middle(self) -> bool:
        """True if a block has a stream between its attention and its MLP."""
        return self.has_mlp and not self.blocks[0].parallel

    @property
    def is_gated(self) -> bool:
        """True if MLPs are gated."""
        return any(block.mlp is not None and block.mlp.w_gate is not None for block in self.blocks)

    @property
    def copied_bytes(self) -> int:
        """Memory of the weights that are laid out anew; the others are the model's own."""
        attentions = (block.attn for block in self.blocks)
        return sum(attn.w_qkv.nbytes + attn.b_qkv.nbytes for attn in attentions if attn is not None)

    def __call__(
        self, inputs: Inputs, read: Read | None = None, at: Changes = NONE, *, start: Start | None = None
    ) -> Float[Tensor, "*read d_output"]:
        """Logits, or output vectors.

        Args:
            inputs: Tokens `batch pos`, or vectors `batch pos width`.
            read: Where they are wanted; none: everywhere.
            at: What is changed or observed on the way.
            start: Where to resume an unchanged run; none: at the embedding.
        """
        start = self._start(inputs, read, at) if start is None else start
        stream = start.stream
        for index in range(start.layer, len(self.blocks)):
            is_last = index == len(self.blocks) - 1
            stream = self.after_block(index, stream, read if is_last else None, at, inputs)
        return self.unembedded(stream)

    @cached_property
    def first(self) -> lookup.FirstLayer:
        """The first layer, which lookup tables may replace."""
        return lookup.FirstLayer(
            w_e=self.w_e, w_pos=self.w_pos, block=self.blocks[0], silent=self.silent, is_only=len(self.blocks) == 1
        )

    def _start(self, inputs: Inputs, read: Read | None, at: Changes) -> Start:
        """The first block done where its attention is looked up, otherwise nothing but the embedding."""
        stream = lookup.after_attention(self.first, inputs, read, at)
        if stream is None:
            return Start(layer=0, stream=self.embedded(inputs, at))
        block = self.blocks[0]
        return Start(layer=1, stream=stream if block.mlp is None else stream + block.mlp(block.ln2(stream)))

    def resumable(self, inputs: Inputs, layer: int, earlier: Start | None = None) -> Start:
        """Run an unchanged model up to a block.

        Args:
            inputs: Tokens or vectors.
            layer: The number of the block.
            earlier: Where the run stands before an earlier one; none: at the embedding.
        """
        at = Changes({})
        earlier = Start(layer=0, stream=self.embedded(inputs, at)) if earlier is None else earlier
        stream = earlier.stream
        for index in range(earlier.layer, layer):
            stream = self.after_block(index, stream, None, at, inputs)
        return Start(layer=layer, stream=stream)

    def observe(self, inputs: Inputs, at: Changes) -> None:
        """Run the model as far as something is observed.

        Args:
            inputs: Tokens or vectors.
            at: What is observed.
        """
        stream, last = self.embedded(inputs, at), at.last_block()
        for index in range(-1 if last is None else last):
            stream = self.after_block(index, stream, None, at, inputs)
        if last is None:
            return
        here, block = at.of_block(last), self.blocks[last]
        stream = here("hook_resid_pre", stream)
        z = self._z(last, stream, None, at, inputs)
        if here.any(*AFTER_HEADS):
            block.after_heads(stream, z, here)

    def embedded(self, inputs: Inputs, at: Changes = NONE) -> Float[Tensor, "batch pos d_model"]:
        """The stream before the first block."""
        stream = inputs @ self.w_e if inputs.is_floating_point() else F.embedding(inputs, self.w_e)
        stream = at("hook_embed", stream)
        if self.w_pos is None:
            return stream
        places = self.w_pos[: inputs.shape[1]]
        if at.any("hook_pos_embed"):
            places = at("hook_pos_embed", places.expand(len(inputs), -1, -1))
        return stream + places

    def after_block(
        self, index: int, stream: Float[Tensor, "batch pos d_model"], read: Read | None, at: Changes, inputs: Inputs
    ) -> Float[Tensor, "*rows d_model"]:
        """The stream after a block: where it is read, or everywhere.

        Args:
            index: The number of the block.
            stream: Before it.
            read: Where the stream is wanted; none: everywhere.
            at: Changes, by full names.
            inputs: Tokens, by which the first block is looked up.
        """
        here, block = at.of_block(index), self.blocks[index]
        stream = here("hook_resid_pre", stream)
        if read is None or (here.any(*AFTER_HEADS) and not at.where_read):
            after = block.after_heads(stream, self._z(index, stream, None, at, inputs), here)
            return after if read is None else read.of(after)
        before = read.of(stream)
        if here.any(*OF_QUERIES):
            z = self._z(index, stream, None, at, inputs)
            return block.after_heads(before, None if z is None else read.of(z), here)
        z = self._z(index, stream, read.columns, at, inputs)
        return block.after_heads(before, None if z is None else read.of_columns(z), here)

    def _z(
        self, index: int, stream: Tensor, queries: Int[Tensor, " query"] | None, at: Changes, inputs: Inputs
    ) -> Float[Tensor, "batch query head_index d_head"] | None:
        """Head outputs z of a block, at some positions or at all; None without attention."""
        block = self.blocks[index]
        if block.attn is None:
            return None
        if index == 0 and (z := lookup.z(self.first, inputs, queries, at)) is not None:
            return z
        return block.attn.z(block.ln1(stream), queries=queries, at=at.of_block(index))

    def unembedded(self, stream: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_output"]:
        """Logits from the stream after the last block."""
        logits = projected(self.ln_final(stream), self.w_u, self.b_u)
        return logits if not self.logit_cap else self.logit_cap * torch.tanh(logits / self.logit_cap)

    def resumed(
        self,
        stream: Float[Tensor, "cell prompt suffix d_model"],
        entered: Sequence[int],
        past: Sequence[Past],
        read: Int[Tensor, " read"],
    ) -> Float[Tensor, "cell prompt read d_output"]:
        """Logits after changes of the residual stream.

        Args:
            stream: The changed stream of every cell at its own point, from the first changed position to the end;
                cells in the order of their points. It is overwritten.
            entered: How many cells have entered up to each point, the point itself included.
            past: Of every layer in the run that is changed.
            read: Positions whose logits are wanted, ascending, none before the first changed one.
        """
        start = past[0].k.shape[-2] - stream.shape[-2]
        last = len(self.blocks) - 1
        for index, block in enumerate(self.blocks):
            changed = stream[: entered[2 * index]]
            queries = read - start if index == last else None
            added = None
            if len(changed):
                assert block.attn is not None
                added = block.attn.written(block.attn.z(block.ln1(changed), queries=queries, past=past[index]))
                if block.parallel and block.mlp is not None:
                    added += block.mlp(block.ln2(changed if queries is None else changed[:, :, queries]))
            if queries is not None:
                stream = stream[:, :, queries]
            if added is not None:
                stream[: len(added)] += added
            if index < last:
                self._add_mlp(index, stream[: entered[2 * index + 1]])
        return self.ended(stream, entered[2 * last + 1])

    def ended(
        self, stream: Float[Tensor, "cell prompt read d_model"], through_mlp: int
    ) -> Float[Tensor, "cell prompt read d_output"]:
        """Logits after changes of the stream in or after the last block.

        Args:
            stream: The changed stream after the last attention, at the positions that are read. It is overwritten.
            through_mlp: How many cells the last MLP still has to act on, the first ones.
        """
        self._add_mlp(len(self.blocks) - 1, stream[:through_mlp])
        return self.unembedded(stream)

    def _add_mlp(self, index: int, stream: Float[Tensor, "cell prompt some d_model"]) -> None:
        """Change the stream in place as the MLP of a block does, unless it already acted beside attention."""
        block = self.blocks[index]
        if block.mlp is not None and not block.parallel and len(stream):
            stream += block.mlp(block.ln2(stream))
