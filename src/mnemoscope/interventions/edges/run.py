"""Forward passes in which every edge of a model's graph carries what its state asks for: many choices in one batch.

The input of a reader is what it was in the unchanged run, plus the change of every live writer, plus, on the edges
that are patched, the difference between the other run and the unchanged one:

    input = unchanged + Σ live (written now - written unchanged) + Σ patched (written in the other run - unchanged).

`written` records the unchanged run as this needs it. The prompts are repeated once per cell. An input whose edges are
all live in all cells is left to the model, so that cells in which nothing is changed give the model's own logits.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core.batch import Inputs
from mnemoscope.core.edge import Through
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Site
from mnemoscope.interventions.edges.graph import Carried, Input, inputs, writers
from mnemoscope.interventions.edges.hooks import reading
from mnemoscope.interventions.reading import at_columns, unembedding
from mnemoscope.interventions.recordings import forward, repeated
from mnemoscope.interventions.writing import Hook

Freeze = Literal["attention", "layer_norm"]
FREEZES: tuple[Freeze, ...] = get_args(Freeze)
"""What keeps its values of the unchanged run: attention patterns, or the scales of normalisations."""
_ENDS: dict[Freeze, str] = {"attention": ".attn.hook_pattern", "layer_norm": ".hook_scale"}


@dataclass(frozen=True, kw_only=True)
class Written:
    """A forward pass without interventions.

    Attributes:
        outputs: What each writer (`graph.writers`, embeddings apart) added to the residual stream.
        kept: By hook point: the stream where it is read, patterns and scales.
        logits: At the positions that metrics read.
    """

    outputs: Float[Tensor, "writer prompt pos d_model"]
    kept: Mapping[str, Tensor]
    logits: Float[Tensor, "prompt read d_vocab"]


@torch.no_grad()
def written(
    model: HookedModel,
    tokens: Inputs,
    read: Int[Tensor, " read"],
    wanted: frozenset[Freeze] = frozenset(),
    *,
    directly: bool = False,
) -> Written:
    """Run a model that `graph.check_graph` lets through; hooks that are on it take part.

    It keeps what is `wanted`, patterns and scales; the other arguments and the errors are those of
    `recordings.forward`.
    """
    frozen = {name for name in model.hook_dict if name.endswith(tuple(_ENDS[part] for part in wanted))}
    names = {*(stream_name(model, *place) for place in inputs(model)), *frozen}
    found, logits = forward(model, tokens, {*names, *writer_names(model)}, read, directly=directly)
    return Written(outputs=outputs(model, found), kept={name: found[name] for name in names}, logits=logits)


def writer_names(model: HookedModel) -> set[str]:
    """The hook points that `outputs` needs."""
    return {site.hook for site in writers(model, embeddings="apart")}


def outputs(model: HookedModel, found: Mapping[str, Tensor]) -> Float[Tensor, "writer prompt pos d_model"]:
    """The contribution of each writer to the residual stream, from activations by hook point."""
    sites = writers(model, embeddings="apart")
    return torch.stack(
        [of_head(model, site, found[site.hook]) if site.kind == "z" else found[site.hook] for site in sites]
    )


def of_head(model: HookedModel, site: Site, z: Float[Tensor, "*rows head_index d_head"]) -> Tensor:
    """What one head adds to the residual stream."""
    assert site.layer is not None
    return z[..., site.head, :] @ model.blocks[site.layer].attn.W_O[site.head]


def stream_name(model: HookedModel, reader: Site | Literal["logits"], through: Through | None) -> str:
    """The hook point of the residual stream that a part reads."""
    if not isinstance(reader, Site):
        return f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"
    end = "mid" if through is None and reader.kind == "mlp_out" and not model.cfg.parallel_attn_mlp else "pre"
    return f"blocks.{reader.layer}.hook_resid_{end}"


class Cells:
    """A forward pass of some prompts under each choice of states.

    Patterns and scales that the unchanged run has kept stay as they were there.

    Args:
        model: A model that `graph.check_graph` lets through.
        base: The unchanged run of the prompts.
        other: The output of every writer on patched edges.
        carried: The states, a cell a choice.
    """

    def __init__(
        self, model: HookedModel, base: Written, other: Float[Tensor, "writer prompt pos d_model"], carried: Carried
    ):
        self.model, self.base, self.carried = model, base, carried
        self.numbers = {place: number for number, place in enumerate(inputs(model))}
        self.wanted = {place for place, number in self.numbers.items() if carried.changed[number]}
        self.of_stream: dict[str, list[Input]] = {}
        for place in self.numbers:
            if place in self.wanted:
                self.of_stream.setdefault(stream_name(model, *place), []).append(place)
        self.differs = other - base.outputs
        self.written = base.outputs.new_zeros(len(carried.live), *base.outputs.shape)
        """By how much what is written differs from the unchanged run."""
        self.added: tuple[str, Tensor] = ("", base.outputs)
        """A stream, and by how much it differs for all that read it, whichever asks first."""

    @torch.no_grad()
    def logits(self, tokens: Inputs, read: Int[Tensor, " read"]) -> Float[Tensor, "cell prompt read d_vocab"]:
        """Logits of the prompts at some positions."""
        model, n_cells = self.model, len(self.written)
        with reading(model, self.wanted, self._read) as (heads, ends), unembedding(model, at_columns(read)) as picked:
            hooks = [*self._listening(), *heads, *ends, *self._frozen()]
            logits = picked(model.run_with_hooks(repeated(tokens, n_cells), fwd_hooks=hooks))
        return logits.unflatten(0, (n_cells, len(tokens)))

    def _frozen(self) -> list[Hook]:
        def kept(activation: Tensor, hook: Any, *, value: Tensor) -> Tensor:
            value = repeated(value, len(self.written))
            return value[:, :, None] if activation.ndim == value.ndim + 1 else value

        ends = tuple(_ENDS.values())
        return [(name, partial(kept, value=value)) for name, value in self.base.kept.items() if name.endswith(ends)]

    def _listening(self) -> Iterator[Hook]:
        """Hooks that record what is written; embeddings cannot change."""
        for number, site in enumerate(writers(self.model, embeddings="apart")):
            if site.layer is not None:
                yield site.hook, partial(self._record, number=number, site=site)

    def _record(self, activation: Tensor, hook: Any, *, number: int, site: Site) -> None:
        output = of_head(self.model, site, activation) if site.kind == "z" else activation
        self.written[:, number] = output.unflatten(0, (len(self.written), -1)) - self.base.outputs[number]

    def _read(self, own: Sequence[Input], stream: Tensor | None) -> Float[Tensor, "row pos own d_model"]:
        """The inputs of some readers, cells and prompts in one axis."""
        name = stream_name(self.model, *own[0])
        together = self.of_stream[name]
        if self.added[0] != name:
            self.added = name, self._added(together)
        added = self.added[1][:, [together.index(place) for place in own]]
        return rearrange(self.base.kept[name] + added, "cell own row pos d -> (cell row) pos own d")

    def _added(self, places: Sequence[Input]) -> Float[Tensor, "cell own row pos d_model"]:
        """What differs in the inputs of some readers from the unchanged run."""
        numbers = [self.numbers[place] for place in places]
        live, patched = (
            states[..., numbers, :].to(self.written.dtype) for states in (self.carried.live, self.carried.patched)
        )
        if self.carried.uniform:
            live, patched, shape = live[:, 0, 0], patched[:, 0, 0], self.base.outputs.shape[1:]
            read = (live + patched).flatten(0, 1).any(0).nonzero()
            n = int(read.max()) + 1 if len(read) else 0  # no later part is read
            now = torch.bmm(live[..., :n], self.written[:, :n].flatten(2))
            then = patched[..., :n] @ self.differs[:n].flatten(1)
            return (now + then).unflatten(2, shape)
        axes = "cell row pos own writer"
        now = einsum(live, self.written, f"{axes}, cell writer row pos d -> cell own row pos d")
        return now + einsum(patched, self.differs, f"{axes}, writer row pos d -> cell own row pos d")
