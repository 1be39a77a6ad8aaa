"""Interventions on edges: the reader sees another output of the writer, and every other reader the one that it wrote.

For any number of edges in one forward pass; the change of a reader's input is the sum over its edges.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from einops import einsum
from torch import Tensor

from mnemoscope.core.edge import LOGITS, Edge
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Site
from mnemoscope.interventions.edges.graph import block, layout, single
from mnemoscope.interventions.edges.run import check_graph
from mnemoscope.interventions.recordings import results

Hook = tuple[str, Callable[..., Any]]
Changed = Callable[[Tensor], Tensor]
"""From all that a writer's hook point holds to the same with the writer's output changed."""


@contextmanager
def edges_changed(
    model: HookedModel, changes: Sequence[tuple[Edge, Changed]]
) -> Iterator[tuple[list[Hook], list[Hook]]]:
    """Within the block MLPs read what is told; the hooks for the rest are yielded, to be put on the model.

    Args:
        model: A HookedTransformer whose parts add up in the residual stream.
        changes: Edges, and what becomes of the writer's output on each; those of one
            writer and one input act one after the other.

    Yields:
        Hooks that come before those of interventions at sites, and hooks that come after.

    Raises:
        InputError: The model has no such graph or edge.
    """
    check_graph(model)
    layout(model, [edge for edge, _ in changes])
    told = _Told(model, changes)
    handles = [
        block(model, reader).ln2.register_forward_pre_hook(partial(told.mlp, reader=reader))
        for reader in {edge.reader for edge, _ in changes if isinstance(edge.reader, Site)}
        if reader.kind == "mlp_out"
    ]
    try:
        yield list(told.heads()), [*told.listening(), *told.logits()]
    finally:
        for handle in handles:
            handle.remove()


class _Told:
    """One forward pass: hears what is written, and adds to what is read."""

    def __init__(self, model: HookedModel, changes: Sequence[tuple[Edge, Changed]]):
        self.model, self.changes = model, changes
        self.written: dict[Site, Tensor] = {}
        self.stream: dict[int | None, Tensor] = {}

    def listening(self) -> Iterator[Hook]:
        """Hooks that note what is written, and the stream that heads read."""
        for writer in {edge.writer for edge, _ in self.changes}:
            yield writer.hook, partial(self._hear, writer=writer)
        for layer in {edge.reader.layer for edge, _ in self.changes if isinstance(edge.reader, Site)}:
            yield f"blocks.{layer}.hook_resid_pre", partial(self._note, layer=layer)

    def _hear(self, activation: Tensor, hook: Any, *, writer: Site) -> None:
        is_head = writer.kind == "z"
        self.written[writer] = results(self.model, writer.layer or 0, activation) if is_head else activation

    def _note(self, activation: Tensor, hook: Any, *, layer: int | None) -> None:
        self.stream[layer] = activation

    def heads(self) -> Iterator[Hook]:
        """Hooks that tell heads; what is done to their queries, keys and values comes after."""
        inputs = {
            (part.reader, part.through)
            for edge, _ in self.changes
            for part in single(self.model, edge)
            if isinstance(part.reader, Site) and part.through is not None
        }
        for reader, through in inputs:
            yield f"blocks.{reader.layer}.attn.hook_{through}", partial(self._head, reader=reader, through=through)

    def logits(self) -> Iterator[Hook]:
        """The hook that tells the logits."""
        if any(edge.reader == LOGITS for edge, _ in self.changes):
            yield f"blocks.{self.model.cfg.n_layers - 1}.hook_resid_post", self._logits

    def mlp(self, module: Any, arguments: tuple[Tensor], *, reader: Site) -> Tensor:
        """The input of an MLP, in the place of what its normalisation is given."""
        return arguments[0] + self._added(reader, None)

    def _logits(self, activation: Tensor, hook: Any) -> Tensor:
        return activation + self._added(LOGITS, None)

    def _head(self, activation: Tensor, hook: Any, *, reader: Site, through: str) -> Tensor:
        layer = block(self.model, reader)
        normed = layer.ln1(self.stream[reader.layer] + self._added(reader, through))
        weight, bias = (getattr(layer.attn, f"{end}_{through.upper()}")[reader.head] for end in "Wb")
        result = activation.clone()
        result[:, :, reader.head] = (
            einsum(normed, weight, "batch pos d_model, d_model d_head -> batch pos d_head") + bias
        )
        return result

    def _added(self, reader: Any, through: str | None) -> Tensor | float:
        """The change of an input."""
        now: dict[Site, Tensor] = {}
        for edge, change in self.changes:
            if edge.reader == reader and edge.through in (None, through):
                now[edge.writer] = change(now.get(edge.writer, self.written[edge.writer]))
        total: Tensor | float = 0.0
        for writer, after in now.items():
            difference = after - self.written[writer]
            total = total + (difference.sum(2) if writer.kind == "z" else difference)
        return total
