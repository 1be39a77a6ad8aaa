"""Circuits, and what they are measured on: a model, pairs of prompts, a metric, and what edges outside a circuit carry.

The clean prompts are run with the edges of the circuit live; all others carry what their writer wrote in the corrupted
run, its mean there, or nothing. With m(C) the mean over prompts of the metric, m(all) that of the model and m(none)
that of the empty circuit,

    faithfulness(C) = (m(C) - m(none)) / (m(all) - m(none)),

0 for the empty circuit and 1 for the whole model. It can lie above 1, where what is left out works against the
answer, and below 0. With KL as metric it is 1 - KL(C) / KL(none), never above 1.

A circuit is an array of truth values along `edge`, whose labels are the edges' names; the coordinates `writer`,
`reader` and `through` say what they join. The *pruned* form leaves out what cannot matter. No edge matters from which
no path of edges in the circuit leads on to the logits. Where everything else carries the corrupted run, neither does
an edge that no path from the embeddings leads to: its writer reads the corrupted run only, and writes what it wrote
there. Where everything else carries means or zeros, such a writer makes something of them and its edges stay.

auto-circuit runs circuits as they are. EAP-IG prunes in both directions before it runs them, whatever the rest
carries, so that its circuits under means or zeros can differ from those that it was given.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter
from typing import Any, Literal

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int

from mnemoscope.analyses.forward import check_fits
from mnemoscope.analyses.patching import effects
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.errors import InputError
from mnemoscope.core.metrics import LOGIT_DIFF, Metric
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel, ModelLike, resolve_model
from mnemoscope.core.site import LOGITS, Edge, Site, edge_coordinates, reading_depth
from mnemoscope.engine.budget import default_max_bytes
from mnemoscope.interventions.circuit_runs import run_circuits
from mnemoscope.interventions.edge_states import EdgeReplacement
from mnemoscope.interventions.graph import Embeddings, parts_of_reader
from mnemoscope.interventions.graph import model_edges as all_edges
from mnemoscope.interventions.measurement import SweepQuestion, weight_processing

Part = Site | Literal["logits"]
"""A part that writes, reads, or both."""


@check_arguments
def circuit(edges: Sequence[Edge], members: Iterable[str]) -> xr.DataArray:
    """The circuit of some edges, by name.

    `members` are names as `str(edge)` gives them: `L0H1 → L0 MLP`. Raises InputError where the model has no such edge.

    Returns truth values over edge.

    >>> edges = ms.interventions.model_edges(model)
    >>> ms.analyses.circuit(edges, ["L0H1 → logits"]).sum().item()
    1
    """
    names, members = [str(edge) for edge in edges], set(members)
    if unknown := sorted(members.difference(names)):
        raise InputError(
            f"a circuit consists of edges of the model; it has no {unknown[0]!r}; it has {_shorten_names(names)}"
        )
    return label_edges(edges, np.array([name in members for name in names]))


def label_edges(
    edges: Sequence[Edge],
    values: Bool[np.ndarray, "*circuits edge"] | Float[np.ndarray, "*circuits edge"],
    *dims: str,
) -> xr.DataArray:
    """Circuits, or scores of edges, with the names of the edges; `dims` name the axes before."""
    return xr.DataArray(values, dims=(*dims, "edge"), coords=edge_coordinates(edges), name="circuit")


def align_to_edges(edges: Iterable[Edge | str], values: xr.DataArray) -> xr.DataArray:
    """Values along `edge` in the order of a model's edges, `edge` last; refused where they are not one per edge."""
    names = [str(edge) for edge in edges]
    given = [str(name) for name in values["edge"].values] if "edge" in values.coords else []
    if sorted(given) != sorted(names):
        odd = sorted(set(given) ^ set(names))
        raise InputError(
            f"a circuit or scores have one value for each of the {len(names)} edges of the model, labelled along edge; "
            f"got {len(given)}, which differ in {_shorten_names(odd) or 'how often they occur'}; "
            "label them by setting.edges"
        )
    return values.sel(edge=names).transpose(..., "edge")


def circuit_masks(edges: Sequence[Edge], circuits: xr.DataArray) -> Bool[np.ndarray, "*circuits edge"]:
    """Circuits as truth values in the order of a model's edges; refused where they are not one per edge."""
    masks = align_to_edges(edges, circuits).to_numpy()
    if masks.dtype != bool:
        raise InputError(
            f"a circuit holds truth values; got {masks.dtype}; compare scores with a threshold, or `top_n`"
        )
    return masks


def circuit_nodes(circuit: xr.DataArray) -> list[str]:
    """The parts that a circuit's edges join, in the order of writing, the logits last.

    >>> edges = ms.interventions.model_edges(model)
    >>> ms.analyses.circuit_nodes(ms.analyses.circuit(edges, ["L0H1 → logits"]))
    ['L0H1', 'logits']
    """
    ends = {end: list(map(str, circuit[end].values)) for end in ("writer", "reader")}
    sources = [name for name in dict.fromkeys(ends["writer"]) if name not in set(ends["reader"])]
    joined = {name for names in ends.values() for name, inside in zip(names, circuit.values, strict=True) if inside}
    return [name for name in dict.fromkeys((*sources, *ends["reader"])) if name in joined]


@dataclass(frozen=True, kw_only=True, eq=False)
class EdgePaths:
    """The edges of a model by the parts that they join, to follow paths in many circuits at once.

    `from_` gives by writer, `into` by reader, the numbers of the edges there, in the order of writing or reading.
    `parts` gives by reader the parts whose output depends on what it reads.
    """

    from_: Mapping[Part, Int[np.ndarray, " _"]]
    into: Mapping[Part, Int[np.ndarray, " _"]]
    parts: Mapping[Part, Sequence[Part]]

    @staticmethod
    def from_edges(model: HookedModel, edges: Sequence[Edge]) -> "EdgePaths":
        """The paths of a model."""
        from_, into = _numbers([edge.writer for edge in edges]), _numbers([edge.reader for edge in edges])
        return EdgePaths(from_=from_, into=into, parts={reader: parts_of_reader(model, reader) for reader in into})

    @cached_property
    def readers(self) -> dict[Part, list[Part]]:
        """The parts that read for each part."""
        found: dict[Part, list[Part]] = {}
        for reader, parts in self.parts.items():
            for part in parts:
                found.setdefault(part, []).append(reader)
        return found

    def prune(
        self, masks: Bool[np.ndarray, "*circuits edge"], *, from_embeddings: bool
    ) -> Bool[np.ndarray, "*circuits edge"]:
        """The edges of circuits on paths to the logits; with `from_embeddings` only on those that start there."""
        kept = masks.copy()
        for writer, edges in self.from_.items() if from_embeddings else ():
            if reading_depth(writer) >= 0:
                kept[..., edges] &= _contains_any(kept, [self.into[reader] for reader in self.readers[writer]])
        for reader, edges in reversed(list(self.into.items())):
            if reader != LOGITS:
                kept[..., edges] &= _contains_any(kept, [self.from_[part] for part in self.parts[reader]])
        return kept


def _numbers(parts: Sequence[Part]) -> dict[Part, Int[np.ndarray, " _"]]:
    """The places of each part, those of the lowest layer first."""
    found: dict[Part, list[int]] = {part: [] for part in sorted(dict.fromkeys(parts), key=reading_depth)}
    for number, part in enumerate(parts):
        found[part].append(number)
    return {part: np.array(numbers) for part, numbers in found.items()}


def _contains_any(
    masks: Bool[np.ndarray, "*circuits edge"], groups: Sequence[Int[np.ndarray, " _"]]
) -> Bool[np.ndarray, "*circuits 1"]:
    """True for circuits that hold one of some edges."""
    return np.asarray(masks[..., np.concatenate(groups)].any(-1, keepdims=True))


def _shorten_names(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")


TARGET = 0.9
"""Faithfulness that searches aim at by default."""
UNIT = "share of the difference between the model and the empty circuit"
"""The unit of faithfulness, and of differences of it."""
ROUNDING = 1e-6
"""The amount by which faithfulness may fall short of a target."""
LARGE = 8000
"""Graphs with more edges are those of language models: not every circuit that one might ask for can be run."""
_FEW = 4
"""Circuits that are run without asking how long they take."""
_AT_ONCE = 2048
"""Circuits whose values of single prompts are kept at the same time."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Setting:
    """The measuring ground for circuits of one model, the same for all measures and searches.

    Attributes:
        model: A run, a subject or a model, such as a HookedTransformer, whose parts add up in the residual stream.
        pairs: Clean and corrupted prompts; the metric is read at their scored positions.
        metric: The value of a prompt is the mean over its scored positions; vectors need one of theirs.
        replacement: What edges outside a circuit carry: `patch`, what the writer wrote on the corrupted prompt;
            `mean`, the mean of that over prompts, position by position; `zero`, nothing.
        embeddings: Whether token and positional embedding are one writer or two.
        refuse: Whether to raise where the metric does not tell the model from the empty circuit by more than noise
            (as `effects` has it); otherwise every faithfulness is NaN there. A divergence tells any two
            predictions apart: look at another metric for whether the model knows the answer.
        max_bytes: Bound on what a run of circuits allocates on the way. None: as for `patch`.
        max_seconds: Bound on what one analysis may take by estimate, of models with more than `LARGE` edges: more is
            refused before it starts, saying how much it would be. None: there is none.

    >>> setting = ms.analyses.Setting(model=model, pairs=pairs)
    >>> len(setting.edges), setting.span > 0
    (13, True)
    """

    model: ModelLike
    pairs: PromptPairs
    metric: Metric = LOGIT_DIFF
    replacement: EdgeReplacement = "patch"
    embeddings: Embeddings = "together"
    refuse: bool = True
    max_bytes: int | None = None
    max_seconds: float | None = 600.0

    def __post_init__(self) -> None:
        _ = self.hooked  # what is no model is refused here

    def changed(self, **changes: Any) -> "Setting":
        """The same setting with other pairs, another metric or another replacement; the graph is not built again."""
        other = replace(self, **changes)
        vars(other).update(hooked=self.hooked, edges=self.edges, paths=self.paths)
        return other

    @cached_property
    def hooked(self) -> HookedModel:
        """The model that runs: that of `model`, if this is a run or a subject."""
        return resolve_model(self.model)

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Every edge of the model, in the order of the readers."""
        return all_edges(self.hooked, embeddings=self.embeddings)

    @cached_property
    def paths(self) -> EdgePaths:
        """The paths by which the edges join the parts of the model."""
        return EdgePaths.from_edges(self.hooked, self.edges)

    @cached_property
    def ends(self) -> tuple[Float[np.ndarray, " prompt"], Float[np.ndarray, " prompt"]]:
        """The metric of the whole model and of the empty circuit.

        Raises InputError where the model does not fit the prompts or has no such graph, or its logits hold NaN.
        """
        for batch in (self.pairs.clean, self.pairs.corrupted):
            check_fits(self.hooked, batch, vectors=True)
        whole, empty = self._run(np.array([[True], [False]]).repeat(len(self.edges), 1))
        return whole, empty

    @cached_property
    def seconds(self) -> float:
        """The duration of one circuit here, measured on one that is run a second time."""
        _ = self.ends
        start = perf_counter()
        self._run(np.ones((1, len(self.edges)), dtype=bool))
        return perf_counter() - start

    def check_time(self, n_circuits: int, what: str, way_out: str) -> None:
        """Refuse what would take too long on a large graph; the InputError says how long, and names a way out."""
        if self.max_seconds is None or len(self.edges) <= LARGE or n_circuits <= _FEW:
            return
        needed = n_circuits * self.seconds
        if needed > self.max_seconds:
            raise InputError(
                f"{what} runs {n_circuits:,} circuits of a graph with {len(self.edges):,} edges, about "
                f"{needed / 60:,.0f} minutes here; {way_out}, or allow max_seconds={needed:.0f}"
            )

    @cached_property
    def span(self) -> float:
        """The denominator of faithfulness: m(all) - m(none); NaN where that is noise.

        Raises InputError where it is noise and `refuse` is set, and as `ends`.
        """
        names = ("metric", "prompt")
        whole, empty = ((names, values[None]) for values in self.ends)
        value = (("direction", *names), self.ends[1][None, None])
        coords = {"direction": ["noising"], "metric": [self.metric.name]}
        result = xr.Dataset({"value": value, "clean": whole, "corrupted": empty}, coords=coords)
        apart = bool(effects(result, refuse=self.refuse).ratio.notnull().all())
        return float(self.ends[0].mean() - self.ends[1].mean()) if apart else np.nan

    def prune(self, masks: Bool[np.ndarray, "*circuits edge"]) -> Bool[np.ndarray, "*circuits edge"]:
        """Circuits without the edges that cannot matter."""
        return self.paths.prune(masks, from_embeddings=self.replacement == "patch")

    def values(self, masks: Bool[np.ndarray, "circuit edge"]) -> Float[np.ndarray, "circuit prompt"]:
        """The metric of circuits on every prompt; those with the same pruned form are run once."""
        distinct, which = self._distinct(masks)
        self.check_time(len(distinct), "this", "ask for fewer, on fewer prompts")
        return self._run(distinct)[which]

    def faithfulness(self, masks: Bool[np.ndarray, "circuit edge"]) -> Float[np.ndarray, " circuit"]:
        """The faithfulness of circuits; those with the same pruned form are run once. Errors are those of `span`."""
        _ = self.span
        distinct, which = self._distinct(masks)
        self.check_time(len(distinct), "this", "ask for fewer, on fewer prompts")
        chunks = (distinct[start : start + _AT_ONCE] for start in range(0, len(distinct), _AT_ONCE))
        return np.concatenate([self.share(self._run(chunk)) for chunk in chunks])[which]

    def share(self, values: Float[np.ndarray, "circuit prompt"]) -> Float[np.ndarray, " circuit"]:
        """Faithfulness from the metric on every prompt."""
        return (values.mean(1) - self.ends[1].mean()) / self.span

    def error(self, values: Float[np.ndarray, "circuit prompt"]) -> Float[np.ndarray, " circuit"]:
        """Standard error of faithfulness over prompts (of a ratio of means, to first order); NaN for one prompt."""
        if len(self.pairs) == 1:
            return np.full(len(values), np.nan)
        whole, empty = self.ends
        rest = values - empty - self.share(values)[:, None] * (whole - empty)
        return rest.std(1, ddof=1) / np.sqrt(len(self.pairs)) / abs(self.span)

    @property
    def attrs(self) -> dict[str, Any]:
        """A description of what a result was measured on."""
        return {
            "metric": self.metric.name,
            "replacement": self.replacement,
            "pairs": self.pairs.name,
            "n": len(self.pairs),
            "weights": weight_processing(self.hooked),
        }

    def _distinct(self, masks: Bool[np.ndarray, "circuit edge"]) -> tuple[np.ndarray, np.ndarray]:
        """Pruned forms, and which of them each circuit has."""
        packed = np.packbits(self.prune(masks), axis=1)
        _, first, which = np.unique(packed, axis=0, return_index=True, return_inverse=True)
        return self.prune(masks[first]), which.ravel()

    def _run(self, masks: Bool[np.ndarray, "circuit edge"]) -> Float[np.ndarray, "circuit prompt"]:
        max_bytes = default_max_bytes(self.hooked) if self.max_bytes is None else self.max_bytes
        what = {"metrics": (self.metric,), "directions": ("noising",), "max_bytes": max_bytes}
        question = SweepQuestion(model=self.hooked, pairs=self.pairs, **what)
        return run_circuits(question, self.edges, masks, self.replacement)
