"""Forward passes in which every edge of a model's graph carries what it is told to: many choices in one batch.

The input of a reader is what it was in the unchanged run, plus the change of every live writer, plus, on the edges
that are patched, the difference between the other run and the unchanged one:

    input = unchanged + Σ live (written now - written unchanged) + Σ patched (written in the other run - unchanged).

The prompts are repeated once a cell. An input whose edges are all live in all cells is left to the model, so that
cells in which nothing is changed give the model's own logits.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Site
from mnemoscope.interventions.edges.graph import inputs, writers
from mnemoscope.interventions.edges.states import Carried
from mnemoscope.interventions.edges.written import Freeze, Written, of_head

Hook = tuple[str, Callable[..., Tensor | None]]


@torch.no_grad()
def run_cells(
    model: HookedModel,
    tokens: Int[Tensor, "prompt pos"],
    base: Written,
    other: Float[Tensor, "prompt pos writer d_model"],
    carried: Carried,
    read: Int[Tensor, " read"],
    *,
    freeze: Collection[Freeze] = (),
) -> Float[Tensor, "cell prompt read d_vocab"]:
    """Logits of some prompts under each choice of states.

    Args:
        model: That `written.check_graph` lets through.
        tokens: The prompts.
        base: Their own run.
        other: What every writer writes to patched edges.
        carried: The states, a cell a choice.
        read: Positions whose logits are wanted.
        freeze: What keeps its values of `base`, which has recorded it.
    """
    cells = len(carried.live)
    graph = _Graph(model, base, other, carried)
    hooks = [*graph.listening(), *graph.answering(), *_frozen(base, freeze, cells)]
    with graph.mlp_inputs():
        logits = model.run_with_hooks(tokens.repeat(cells, 1), fwd_hooks=hooks)
    return logits.unflatten(0, (cells, len(tokens))).index_select(2, read.to(logits.device))


def _frozen(base: Written, freeze: Collection[Freeze], cells: int) -> list[Hook]:
    def kept(activation: Tensor, hook: Any, *, value: Tensor) -> Tensor:
        value = value.repeat(cells, *(1,) * (value.ndim - 1))
        return value[:, :, None] if activation.ndim == value.ndim + 1 else value

    ends = tuple({"attention": "hook_pattern", "layer_norm": "hook_scale"}[part] for part in freeze)
    return [(name, partial(kept, value=value)) for name, value in base.kept.items() if name.endswith(ends)]


class _Graph:
    """One forward pass: hears what is written, and says what is read."""

    def __init__(self, model: HookedModel, base: Written, other: Tensor, carried: Carried):
        self.model, self.base, self.carried = model, base, carried
        self.writers = writers(model, embeddings="apart")
        self.inputs = inputs(model)
        self.cells = len(carried.live)
        self.differs = other - base.outputs
        self.changed = base.outputs.new_zeros(self.cells, *base.outputs.shape)
        self.told = carried.told.tolist()

    def listening(self) -> Iterator[Hook]:
        """Hooks that note the change of what is written; embeddings cannot change."""
        for number, site in enumerate(self.writers):
            if site.layer is not None:
                yield site.hook, partial(self._hear, number=number, site=site)

    def _hear(self, activation: Tensor, hook: Any, *, number: int, site: Site) -> None:
        output = of_head(self.model, site, activation) if site.kind == "z" else activation
        self.changed[..., number, :] = output.unflatten(0, (self.cells, -1)) - self.base.outputs[:, :, number]

    def answering(self) -> Iterator[Hook]:
        """Hooks that give heads and the logits their input; that of MLPs is no hook point."""
        for layer in range(self.model.cfg.n_layers):
            for through in "qkv":
                if own := self._told(layer, through):
                    name = f"blocks.{layer}.attn.hook_{through}"
                    yield name, partial(self._attend, layer=layer, own=own, way=through)
        if self.told[-1]:
            name = f"blocks.{self.model.cfg.n_layers - 1}.hook_resid_post"
            yield name, partial(self._single, name, [len(self.inputs) - 1])

    def _told(self, layer: int, through: str | None) -> list[int]:
        """Numbers of the inputs of a layer that states say anything about."""
        return [
            number
            for number, (site, way) in enumerate(self.inputs)
            if self.told[number] and isinstance(site, Site) and site.layer == layer and way == through
        ]

    def _attend(self, activation: Tensor, hook: Any, *, layer: int, own: list[int], way: str) -> Tensor:
        block = self.model.blocks[layer]
        heads = [site.head for site in (self.inputs[number][0] for number in own) if isinstance(site, Site)]
        normed = block.ln1(self._input(f"blocks.{layer}.hook_resid_pre", own))
        weight, bias = (getattr(block.attn, f"{end}_{way.upper()}")[heads] for end in "Wb")
        read = einsum(normed, weight, "row pos head d_model, head d_model d_head -> row pos head d_head") + bias
        result = activation.clone()
        result[:, :, heads] = read
        return result

    @contextmanager
    def mlp_inputs(self) -> Iterator[None]:
        """Within the block every MLP reads its own input."""
        handles = []
        for layer in range(self.model.cfg.n_layers):
            if own := self._told(layer, None):
                stream = "hook_resid_pre" if self.model.cfg.parallel_attn_mlp else "hook_resid_mid"
                answer = partial(self._single, f"blocks.{layer}.{stream}", own)
                handles.append(self.model.blocks[layer].ln2.register_forward_pre_hook(answer))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _single(self, stream: str, own: list[int], *ignored: Any, **also: Any) -> Float[Tensor, "row pos d_model"]:
        """The input of a reader that has one, in the place of what a hook is given."""
        return self._input(stream, own)[:, :, 0]

    def _input(self, stream: str, own: list[int]) -> Float[Tensor, "row pos own d_model"]:
        """The inputs of some readers, cells and prompts in one axis."""
        live, patched = (
            states[..., own, :].to(self.changed.dtype) for states in (self.carried.live, self.carried.patched)
        )
        if self.carried.uniform:
            live, patched = live[:, 0, 0], patched[:, 0, 0]
            now = einsum(live, self.changed, "cell own writer, cell row pos writer d -> cell row pos own d")
            then = einsum(patched, self.differs, "cell own writer, row pos writer d -> cell row pos own d")
        else:
            now = einsum(live, self.changed, "cell row pos own writer, cell row pos writer d -> cell row pos own d")
            then = einsum(patched, self.differs, "cell row pos own writer, row pos writer d -> cell row pos own d")
        unchanged = self.base.kept[stream][None, :, :, None]
        return rearrange(unchanged + now + then, "cell row pos own d -> (cell row) pos own d")
