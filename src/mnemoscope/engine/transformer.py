"""A decoder-only transformer as a function: from inputs to logits, or from a changed residual stream on.

    stream = W_E[token] + W_pos[position]
    in each block: stream += attention(norm(stream)), then stream += mlp(norm(stream))   (parallel: both read the same)
    logits = norm(stream) W_U + b_U

A change anywhere alters the stream at one *point* (before, in the middle of or after a block) from one position on.
What follows needs neither the layers before that point nor the positions before that one: those keep the keys and
values of the unchanged run. Points are numbered along the stream: 2 l before block l, 2 l + 1 between its attention
and its MLP, 2 n_layers after the last block.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from mnemoscope.core.batch import Inputs
from mnemoscope.core.dictionary import Dictionary
from mnemoscope.engine import lookup
from mnemoscope.engine.block import Block, OutputPlaces, Past
from mnemoscope.engine.changes import AFTER_HEADS, NO_CHANGES, OF_QUERIES, Changes
from mnemoscope.engine.pointwise import Norm, apply_soft_cap, project
from mnemoscope.engine.splices import splice


@dataclass(frozen=True, kw_only=True)
class Start:
    """A point from which a run can be resumed: the stream before a block."""

    layer: int
    stream: Float[Tensor, "*rows d_model"]


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """The weights of a model.

    Attributes:
        w_e: The embedding of tokens, or the read-in of vectors.
        w_pos: Learned positions, added to the stream; None with rotary positions, or without any.
        logit_cap: Logits x become cap · tanh(x / cap); None: no cap.
        silent: A token with a zero embedding that ends every sequence; None: no such token.
        dictionaries: Those whose features and errors can be changed.
    """

    w_e: Float[Tensor, "d_input d_model"]
    w_pos: Float[Tensor, "n_ctx d_model"] | None
    blocks: tuple[Block, ...]
    ln_final: Norm
    w_u: Float[Tensor, "d_model d_output"]
    b_u: Float[Tensor, " d_output"]
    logit_cap: float | None = None
    silent: int | None = None
    dictionaries: tuple[Dictionary, ...] = ()

    @property
    def has_mlp(self) -> bool:
        """True if the first block has an MLP."""
        return self.blocks[0].mlp is not None

    @property
    def has_middle(self) -> bool:
        """True if there is a stream between attention and MLP: blocks have both, one after the other."""
        return self.has_mlp and not self.blocks[0].parallel

    @property
    def is_gated(self) -> bool:
        """True if MLPs are gated."""
        return any(block.mlp is not None and block.mlp.w_gate is not None for block in self.blocks)

    def dictionary(self, layer: int | None) -> Dictionary:
        """The dictionary of a layer that has one."""
        return next(dictionary for dictionary in self.dictionaries if dictionary.layer == layer)

    @property
    def copied_bytes(self) -> int:
        """Bytes of the attention weights that are copied; the others are the model's own."""
        attentions = (block.attn for block in self.blocks)
        return sum(attn.w_qkv.nbytes + attn.b_qkv.nbytes for attn in attentions if attn is not None)

    def __call__(
        self, inputs: Inputs, read: OutputPlaces | None = None, at: Changes = NO_CHANGES, *, start: Start | None = None
    ) -> Float[Tensor, "*read d_output"]:
        """Logits, or output vectors, where they are read (None: everywhere).

        `inputs` are tokens `batch pos`, or vectors `batch pos width`. `at` has changes and observers on the way.
        `start` is the point at which an unchanged run is resumed; None: the embedding.
        """
        at = self._spliced(at)
        start = self._start(inputs, read, at) if start is None else start
        stream = start.stream
        for index in range(start.layer, len(self.blocks)):
            # Later blocks attend to every position; after the last one only the places that are read matter.
            is_last = index == len(self.blocks) - 1
            stream = self.after_block(index, stream, read if is_last else None, at, inputs)
        return self.unembed(stream)

    def _spliced(self, at: Changes) -> Changes:
        """The changes of a run, with those of features and errors where their dictionaries write."""
        if not (self.dictionaries and at.by_point):
            return at
        norms = [block.ln2.without_weights() for block in self.blocks]
        return splice(at, [(dictionary, norms[dictionary.layer]) for dictionary in self.dictionaries])

    @cached_property
    def first_layer(self) -> lookup.FirstLayer:
        """The first layer, which lookup tables may replace."""
        return lookup.FirstLayer(
            w_e=self.w_e, w_pos=self.w_pos, block=self.blocks[0], silent=self.silent, is_only=len(self.blocks) == 1
        )

    def _start(self, inputs: Inputs, read: OutputPlaces | None, at: Changes) -> Start:
        """The stream after the first block if tables give its attention, otherwise the embedding."""
        stream = lookup.stream_after_attention(self.first_layer, inputs, read, at)
        if stream is None:
            return Start(layer=0, stream=self.embed_inputs(inputs, at))
        block = self.blocks[0]
        return Start(layer=1, stream=stream if block.mlp is None else stream + block.mlp(block.ln2(stream)))

    def observe(self, inputs: Inputs, at: Changes) -> None:
        """Run the model only as far as something is observed."""
        at = self._spliced(at)
        stream, last = self.embed_inputs(inputs, at), at.last_block()
        for index in range(-1 if last is None else last):
            stream = self.after_block(index, stream, None, at, inputs)
        if last is None:
            return
        here, block = at.of_block(last), self.blocks[last]
        stream = here("hook_resid_pre", stream)
        # The MLP is most of a block, and is left out where nothing after the heads is observed.
        z = self._z(last, stream, None, at, inputs)
        if here.any(*AFTER_HEADS):
            block.after_heads(stream, z, here)

    def embed_inputs(self, inputs: Inputs, at: Changes = NO_CHANGES) -> Float[Tensor, "batch pos d_model"]:
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
        self,
        index: int,
        stream: Float[Tensor, "batch pos d_model"],
        read: OutputPlaces | None,
        at: Changes,
        inputs: Inputs,
    ) -> Float[Tensor, "*rows d_model"]:
        """The stream after a block, where it is read (None: everywhere), from the stream before it.

        Changes go by full names. `inputs` are for tables, which may replace the attention of the first block.
        """
        here, block = at.of_block(index), self.blocks[index]
        stream = here("hook_resid_pre", stream)
        # A function at a hook point gets all positions, so nothing may be cut out before the last of them.
        if read is None or (here.any(*AFTER_HEADS) and not at.where_read):
            after = block.after_heads(stream, self._z(index, stream, None, at, inputs), here)
            return after if read is None else read.pick(after)
        before = read.pick(stream)
        if here.any(*OF_QUERIES):
            # These get all queries, but the output projection and the MLP follow for the places that are read only.
            z = self._z(index, stream, None, at, inputs)
            return block.after_heads(before, None if z is None else read.pick(z), here)
        z = self._z(index, stream, read.columns, at, inputs)
        return block.after_heads(before, None if z is None else read.pick_from_columns(z), here)

    def _z(
        self, index: int, stream: Tensor, queries: Int[Tensor, " query"] | None, at: Changes, inputs: Inputs
    ) -> Float[Tensor, "batch query head_index d_head"] | None:
        """Head outputs z of a block at some positions (None: all); None without attention."""
        block = self.blocks[index]
        if block.attn is None:
            return None
        if index == 0 and (z := lookup.head_outputs(self.first_layer, inputs, queries, at)) is not None:
            return z
        padding = None if block.attn.masked is None else inputs == block.attn.masked
        return block.attn.z(block.ln1(stream), queries=queries, at=at.of_block(index), padding=padding)

    def unembed(self, stream: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_output"]:
        """Logits from the stream after the last block."""
        return apply_soft_cap(project(self.ln_final(stream), self.w_u, self.b_u), self.logit_cap)

    def resume_from_stream(
        self,
        stream: Float[Tensor, "cell prompt suffix d_model"],
        n_entered: Sequence[int],
        past: Sequence[Past],
        read: Int[Tensor, " read"],
        *,
        prompts: Int[Tensor, " prompt"] | None = None,
    ) -> Float[Tensor, "cell prompt read d_output"]:
        """Logits after changes of the residual stream.

        Args:
            stream: The changed stream of every cell at its own point, from the first changed position to the end; cells
                in the order of their points. It is overwritten.
            n_entered: Number of cells that have entered up to each point, the point itself included.
            past: Keys and values of every layer in the unchanged run.
            read: Positions whose logits are wanted, ascending; none lies before the first changed position.
            prompts: Numbers of the prompts in `past` that run, which may come several times; None: all, once.
        """
        # Every cell enters the batch at its own point: the batch grows from layer to layer, and no cell runs a layer
        # before its change. Positions before `start` are those of the unchanged run, as keys and values in `past`.
        start = past[0].k.shape[-2] - stream.shape[-2]
        last = len(self.blocks) - 1
        for index, block in enumerate(self.blocks):
            changed = stream[: n_entered[2 * index]]
            queries = read - start if index == last else None
            added = None
            if len(changed):
                assert block.attn is not None
                own = past[index] if prompts is None else past[index].select(prompts)
                added = block.attn.project_out(block.attn.z(block.ln1(changed), queries=queries, past=own))
                if block.parallel and block.mlp is not None:  # it reads the stream before attention is added
                    added += block.mlp(block.ln2(changed if queries is None else changed[:, :, queries]))
            if queries is not None:  # no later layer attends to the other positions
                stream = stream[:, :, queries]
            if added is not None:
                stream[: len(added)] += added
            if index < last:
                self._add_mlp(index, stream[: n_entered[2 * index + 1]])
        return self.finish_from_stream(stream, n_entered[2 * last + 1])

    def finish_from_stream(
        self, stream: Float[Tensor, "cell prompt read d_model"], through_mlp: int
    ) -> Float[Tensor, "cell prompt read d_output"]:
        """Logits after changes of the stream in or after the last block.

        `stream` is the changed stream after the last attention, at the positions that are read; it is overwritten. The
        last MLP still has to act on the first `through_mlp` cells.
        """
        self._add_mlp(len(self.blocks) - 1, stream[:through_mlp])
        return self.unembed(stream)

    def _add_mlp(self, index: int, stream: Float[Tensor, "cell prompt some d_model"]) -> None:
        """Add the contribution of a block's MLP to the stream in place. A parallel block has added it already."""
        block = self.blocks[index]
        if block.mlp is not None and not block.parallel and len(stream):
            stream += block.mlp(block.ln2(stream))
