"""Forward passes in which every edge of a model's graph carries what its state asks for: many choices in one batch.

The input of a reader is what it was in the unchanged run, plus the change of every live writer, plus, on the edges
that are patched, the difference between the other run and the unchanged one:

    input = unchanged + Σ live (written now - written unchanged) + Σ patched (written in the other run - unchanged).

`written` records the unchanged run as this needs it. The prompts are repeated once per cell. An input whose edges are
all live in all cells is left to the model, so that cells in which nothing is changed give the model's own logits.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Site
from mnemoscope.interventions.edges.graph import Carried, block, inputs, writers
from mnemoscope.interventions.patching.reading import check_numbers

Freeze = Literal["attention", "layer_norm"]
FREEZES: tuple[Freeze, ...] = get_args(Freeze)
"""What keeps its values of the unchanged run: attention patterns, or the scales of normalisations."""

_REFUSED = {
    "positional_embedding_type": ("shortformer",),
    "use_normalization_before_and_after": (True,),
    "original_architecture": ("Olmo2ForCausalLM", "Olmo3ForCausalLM"),
}


@dataclass(frozen=True, kw_only=True)
class Written:
    """A forward pass without interventions.

    Attributes:
        outputs: What each writer (`graph.writers`, embeddings apart) added to the residual stream.
        kept: By hook point: the stream where it is read, patterns and scales.
        logits: At the positions that metrics read.
    """

    outputs: Float[Tensor, "prompt pos writer d_model"]
    kept: Mapping[str, Tensor]
    logits: Float[Tensor, "prompt read d_vocab"]


def check_graph(model: HookedModel) -> None:
    """Refuse a model whose parts do not simply add up in the residual stream, or share inputs.

    Raises:
        InputError: Naming what is not supported.
    """
    cfg, who = model.cfg, "edges of this model cannot be told apart"
    for name, refused in _REFUSED.items():
        if getattr(cfg, name, None) in refused:
            raise InputError(f"{who}, because {name} is {getattr(cfg, name)}; patch activations with analyses.patching")
    if getattr(cfg, "n_key_value_heads", None) not in (None, cfg.n_heads):
        raise InputError(f"{who}, because its heads share keys and values; patch activations with analyses.patching")
    if "blocks.0.attn.W_Q" not in dict(model.named_parameters()):
        raise InputError(f"{who}, because it does not keep weights as a HookedTransformer does; load it as one")


@torch.no_grad()
def written(
    model: HookedModel, tokens: Int[Tensor, "prompt pos"], read: Int[Tensor, " read"], wanted: frozenset[Freeze]
) -> Written:
    """Run a model; hooks that are on it take part.

    Raises:
        InputError: The logits hold NaN.
    """
    names = {*_outputs(model).values(), *_streams(model), *_frozen(model, wanted)}
    logits, cache = model.run_with_cache(tokens, names_filter=lambda name: name in names)
    check_numbers(logits)
    kept = {name: cache[name].expand(len(tokens), *cache[name].shape[1:]) for name in names}
    parts = []
    for site, name in _outputs(model).items():
        part = kept[name]
        parts.append(of_head(model, site, part) if site.kind == "z" else part)
    return Written(
        outputs=torch.stack(parts, 2),
        kept={name: kept[name] for name in (*_streams(model), *_frozen(model, wanted))},
        logits=logits.index_select(1, read.to(logits.device)),
    )


def of_head(model: HookedModel, site: Site, z: Float[Tensor, "*rows head_index d_head"]) -> Tensor:
    """What one head adds to the residual stream."""
    writes = block(model, site).attn.W_O[site.head]
    return einsum(z[..., site.head, :], writes, "... d_head, d_head d_model -> ... d_model")


def _outputs(model: HookedModel) -> dict[Site, str]:
    return {site: site.hook for site in writers(model, embeddings="apart")}


def _streams(model: HookedModel) -> list[str]:
    layers = range(model.cfg.n_layers)
    found = [f"blocks.{layer}.hook_resid_pre" for layer in layers]
    if not (model.cfg.attn_only or model.cfg.parallel_attn_mlp):
        found += [f"blocks.{layer}.hook_resid_mid" for layer in layers]
    return [*found, f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"]


def _frozen(model: HookedModel, wanted: frozenset[Freeze]) -> list[str]:
    ends = {"attention": ".attn.hook_pattern", "layer_norm": ".hook_scale"}
    return [name for name in model.hook_dict if name.endswith(tuple(ends[part] for part in wanted))]


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
    hooks = [*graph.listening(), *graph.answering(), *_frozen_hooks(base, freeze, cells)]
    with graph.mlp_inputs():
        logits = model.run_with_hooks(tokens.repeat(cells, 1), fwd_hooks=hooks)
    return logits.unflatten(0, (cells, len(tokens))).index_select(2, read.to(logits.device))


def _frozen_hooks(base: Written, freeze: Collection[Freeze], cells: int) -> list[Hook]:
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
        read_by = self.model.blocks[layer]
        heads = [site.head for site in (self.inputs[number][0] for number in own) if isinstance(site, Site)]
        normed = read_by.ln1(self._input(f"blocks.{layer}.hook_resid_pre", own))
        weight, bias = (getattr(read_by.attn, f"{end}_{way.upper()}")[heads] for end in "Wb")
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
