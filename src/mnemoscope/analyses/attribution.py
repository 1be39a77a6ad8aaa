"""Direct logit attribution: how much each part of the model adds to a difference of logits.

The final residual stream is the sum of the outputs of the parts. A difference of logits is linear in it once the scale
of the final normalisation is held at its value in this run (`residual` has the formula). The terms add up to the
difference that the model gave; a model where they do not is refused. Elhage et al. 2021 (A Mathematical Framework for
Transformer Circuits) read direct paths in this way, Wang et al. 2022 (Interpretability in the Wild) the logit
difference.

Parts and their labels: the embeddings `embed` (scaled, where the model scales them) and `pos_embed`; every head `L0H1`,
its value bias through W_O included; the output bias of every attention layer `L0 b_O`; every MLP `L0 MLP` without its
output bias; that bias `L0 b_out`; the bias of the final normalisation `ln_final b`; the unembedding bias `b_U`. Where
hooks are on the model, `hooks` is what they wrote past the parts: into the residual stream, the summed output of a
layer's heads, or the logits. An MLP whose output a hook replaces keeps its label: its term is what was written less
`b_out`. A head splits further by the position that its values come from, an MLP by neuron.

It shows what a part writes in the direction of the answer, on these prompts. It does not show what the part is needed
for: what later parts make of its output, what it does to the scale of the final normalisation, and what would stand in
for it are in no term or in another part's. A term says nothing about why the part wrote it; that takes an intervention.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import xarray as xr
from einops import einsum
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.analyses.contrasts import Contrast, Foil, Selection, contrast, selection
from mnemoscope.analyses.residual import FROZEN, MAX_BYTES, Reading, check_readable, normalisation_processing, readings
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import Batch
from mnemoscope.core.dictionary_places import layer_dictionary, site_layers
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.numerics import to_numpy
from mnemoscope.core.protocols import HookedModel, ModelLike, is_hooked, resolve_model
from mnemoscope.core.site import Position, Site
from mnemoscope.interventions.writing import is_classic

Terms = Mapping[str, Float[Tensor, "batch pos"]]


def component_hooks(model: HookedModel) -> set[str]:
    """The activations that `component_terms` needs."""
    cfg = model.cfg
    names = {*_embedding_hooks(model).values()}
    names |= {f"blocks.{layer}.attn.{_head_hook(model)}" for layer in range(cfg.n_layers)}
    return names | {f"blocks.{layer}.hook_mlp_out" for layer in range(cfg.n_layers) if not cfg.attn_only}


def component_terms(model: Any, reading: Reading) -> dict[str, Float[Tensor, "batch pos"]]:
    """The term of every part, in the order in which they write."""
    along = reading.direction
    terms = {name: _project_onto(reading.at(hook), along) for name, hook in _embedding_hooks(model).items()}
    for layer, block in enumerate(model.blocks):
        heads = head_terms(model, reading, layer).unbind(-1)
        terms |= {f"L{layer}H{head}": term for head, term in enumerate(heads)}
        terms[f"L{layer} b_O"] = _bias_term(block.attn.b_O, along)
        if not model.cfg.attn_only:
            bias = _bias_term(block.mlp.b_out, along)
            terms[f"L{layer} MLP"] = _project_onto(reading.at(f"blocks.{layer}.hook_mlp_out"), along) - bias
            terms[f"L{layer} b_out"] = bias
    return terms | dict(reading.constants)


def kind_of(label: str) -> str:
    """The kind of a term: that of an embedding, a head, an MLP, a bias or hooks."""
    if label in ("embed", "pos_embed"):
        return "embedding"
    if label == "hooks":
        return "hooks"
    if label.endswith(" MLP"):
        return "MLP"
    return "bias" if " " in label or label == "b_U" else "head"


def head_terms(model: Any, reading: Reading, layer: int) -> Float[Tensor, "batch pos head_index"]:
    """The term of every head of a layer."""
    written = reading.at(f"blocks.{layer}.attn.{_head_hook(model)}")
    along = reading.direction[:, :, None] if model.cfg.use_attn_result else _head_directions(model, reading, layer)
    return (written * along).sum(-1)


def neuron_terms(model: Any, reading: Reading, layer: int) -> Float[Tensor, "batch pos neuron"]:
    """The term of every neuron of a layer: its activation times its row of W_out; they add up to the MLP's.

    Raises InputError where they do not, because a hook is on the MLP's output.
    """
    values, bias = model.W_out[layer].double(), model.blocks[layer].mlp.b_out
    onto = einsum(values, reading.direction, "neuron d_model, batch pos d_model -> batch pos neuron")
    terms = reading.at(f"blocks.{layer}.mlp.hook_post") * onto
    written = _project_onto(reading.at(f"blocks.{layer}.hook_mlp_out"), reading.direction)
    total = written - _bias_term(bias, reading.direction)
    _check_sum(f"the output of the MLP of layer {layer}", "its neurons", terms, total, model, reading)
    return terms


def feature_terms(model: HookedModel, reading: Reading, layer: int) -> Float[Tensor, "batch pos neuron"]:
    """The term of every feature of a layer's dictionary: its activation times the direction that it writes."""
    values = layer_dictionary(model, layer).w_dec.double()
    onto = einsum(values, reading.direction, "neuron d_model, batch pos d_model -> batch pos neuron")
    return reading.at(Site(kind="feature", layer=layer).hook) * onto


def source_terms(model: Any, reading: Reading, layer: int) -> Float[Tensor, "batch pos head_index key"]:
    """The term of every head of a layer by the position its values come from; over the keys they add up to the head's.

    Raises InputError where they do not, because a hook is on the head's output.
    """
    values = reading.cache[f"blocks.{layer}.attn.hook_v"].double()
    shared = model.cfg.n_heads // values.shape[2]  # grouped-query attention: so many heads share their values
    values = values.repeat_interleave(shared, dim=2)
    onto = _head_directions(model, reading, layer)
    read = einsum(values, onto, "batch key head_index d_head, batch pos head_index d_head -> batch pos head_index key")
    pattern = reading.cache[f"blocks.{layer}.attn.hook_pattern"][:, :, reading.columns].double()
    terms = read * pattern.transpose(1, 2)
    for head, total in enumerate(head_terms(model, reading, layer).unbind(-1)):
        _check_sum(f"the output of head L{layer}H{head}", "its sources", terms[:, :, head], total, model, reading)
    return terms


def hooks_term(model: HookedModel, terms: Terms, reading: Reading) -> dict[str, Float[Tensor, "batch pos"]]:
    """The writing of hooks past the parts, if hooks are on the model; 0 where the parts add up by themselves.

    Raises InputError where no hook is on the model and the parts do not add up to the difference of logits.
    """
    missing, allowed, beyond = _gap(torch.stack(list(terms.values()), -1), reading.truth, reading)
    if is_hooked(model):
        return {"hooks": torch.where(beyond, missing, torch.zeros_like(missing))}
    if beyond.any():
        raise InputError(
            f"the terms of the model's parts must add up to the logit difference; on this {type(model).__name__} they "
            f"miss it by up to {float(missing[beyond].abs().max()):.3g}, with {float(allowed.max()):.3g} allowed, so "
            "that something else writes to its logits, such as a norm behind a block: ablate or patch it"
        )
    return {}


def _check_sum(what: str, parts: str, terms: Tensor, total: Tensor, model: HookedModel, reading: Reading) -> None:
    missing, _, beyond = _gap(terms, total, reading)
    if not beyond.any():
        return
    worst = f"{float(missing[beyond].abs().max()):.3g}"
    other, way_out = ("a hook on the model", ", or remove the hook") if is_hooked(model) else ("something else", "")
    raise InputError(
        f"{what} must be the sum of {parts}, and {other} changed it by up to {worst} (logit difference): leave that "
        f"layer out{way_out}"
    )


def _gap(terms: Tensor, total: Tensor, reading: Reading) -> tuple[Tensor, Tensor, Tensor]:
    """The distance of terms from their total at the contrast's positions, its bound by rounding, and if it is more."""
    missing = torch.where(reading.contrast.positions, total - terms.sum(-1), 0.0)
    allowed = reading.rounding * (reading.size + terms.abs().sum(-1))
    return missing, allowed, missing.abs() > allowed


def _project_onto(written: Tensor, direction: Tensor) -> Float[Tensor, "batch pos"]:
    return (written * direction).sum(-1)


def _bias_term(bias: Tensor | None, direction: Tensor) -> Float[Tensor, "batch pos"]:
    """The term of a bias; 0 where a bridged model has none."""
    return torch.zeros_like(direction[..., 0]) if bias is None else direction @ bias.double()


def _head_directions(model: Any, reading: Reading, layer: int) -> Float[Tensor, "batch pos head_index d_head"]:
    """The factor of z of every head."""
    writes = model.blocks[layer].attn.W_O.double()
    axes = "head_index d_head d_model, batch pos d_model -> batch pos head_index d_head"
    return einsum(writes, reading.direction, axes)


def _head_hook(model: HookedModel) -> str:
    """`hook_result` where the model computes it, since a hook may be on it."""
    return "hook_result" if model.cfg.use_attn_result else "hook_z"


def _embedding_hooks(model: HookedModel) -> dict[str, str]:
    """The activation of each embedding by its label.

    A bridge shows the token embedding before it is scaled (Gemma) or normalised; the first stream holds it as written.
    """
    if model.cfg.positional_embedding_type == "standard":
        return {"embed": "hook_embed", "pos_embed": "hook_pos_embed"}
    as_written = not (is_classic(model) or is_hooked(model))
    return {"embed": "blocks.0.hook_resid_pre" if as_written else "hook_embed"}


By = Literal["component", "head", "neuron", "feature", "source"]
MAX_RESULT_BYTES = 2**31
"""The largest result; a larger one is refused before it is computed."""


@dataclass(frozen=True, kw_only=True)
class _Split:
    """One way to split the parts of a layer: how their labels go on after the layer, the terms, and what they need.

    An empty label: what is split up is only some of the layer's terms, and what it leaves goes to `rest`.
    """

    labels: Literal["H", " MLP", ""]
    terms: Callable[[HookedModel, Reading, int], Float[Tensor, "batch pos *term"]]
    hooks: tuple[str, ...] = ()


_SPLITS = {
    "head": _Split(labels="H", terms=head_terms),
    "neuron": _Split(labels=" MLP", terms=neuron_terms, hooks=("mlp.hook_post",)),
    "feature": _Split(labels="", terms=feature_terms, hooks=("hook_feature",)),
    "source": _Split(labels="H", terms=source_terms, hooks=("attn.hook_v", "attn.hook_pattern")),
}


@check_arguments
@torch.no_grad()
def logit_attribution(
    model: ModelLike,
    batch: Batch,
    *,
    by: By = "component",
    layers: Sequence[int] | None = None,
    answer: Int[Tensor, "batch pos"] | None = None,
    foil: Foil = "mean",
    positions: Bool[Tensor, "batch pos"] | Position | None = None,
    skills: Mapping[str, Bool[Tensor, "batch pos"]] | None = None,
    max_bytes: int = MAX_BYTES,
) -> xr.Dataset:
    """The terms that add up to the logit of the answer minus that of a foil, or minus a mean of logits.

    Args:
        model: A run, a subject or any hooked model in float32 or float64. Hooks that are on it stay and take part.
        batch: The sequences. They are run in chunks, or all at once if hooks are on the model.
        by: How fine: every part of the model, or heads, or neurons, or features, or heads by the position that values
            come from.
        layers: Which layers are split by head, neuron, feature or source; none: all, of features those with a
            dictionary. The others go to `rest`, and what dictionaries leave out.
        answer: The token at every position; none: the batch's targets.
        foil: A token for each position, or tokens whose mean logit is subtracted (a task's `answers`, say), or
            `mean`: the mean over the whole vocabulary, tokens that never occur included.
        positions: Where to look: a mask, positions, or the name of a latent; none: the scored positions, or with
            `skills` wherever one of them is True.
        skills: Masks; means over each are returned in place of the single values.
        max_bytes: How much the activations of one chunk may take up.

    Returns:
        `attribution` over (component, prompt, pos), (layer, head, prompt, pos), (layer, neuron, prompt, pos), for
        features too, or (layer, head, key, prompt, pos), with `skill` in place of (prompt, pos) if there are skills;
        `rest`, all the other terms together (not by component); `logit_difference`, what they add up to. In nats,
        float64; `pos` has the positions that are looked at, NaN in sequences where they are not; NaN for a skill
        without a position. By component there is a coordinate `kind`: embedding, head, MLP, bias or hooks (see the
        module). Of prompts made of texts `token` is what stands at (prompt, pos), and `pos_token` what all prompts
        have there.

    Raises:
        InputError: The model is not supported, the sequences do not fit it, shapes differ, or a token or a layer is
            out of range. The foil is the answer everywhere, or missing. There are no neurons, the result would be too
            large, a hook changed what is to be split, or NaN. The terms do not add up to the logit difference.

    >>> parts = ms.logit_attribution(model, batch, by="head")
    >>> total = parts.attribution.sum(["layer", "head"]) + parts.rest
    >>> bool(abs(total - parts.logit_difference).max() < 1e-3)
    True
    """
    model = resolve_model(model, batch=batch)
    check_readable(model)
    one_of("by", by, ("component", *_SPLITS))
    split = _SPLITS.get(by)
    chosen = _layers(model, by, layers)
    select = selection(batch, positions=positions, skills=skills)
    what = contrast(model, batch, positions=select.positions, answer=answer, foil=foil)
    coords = _coords(model, batch, by, chosen)
    n_terms = math.prod(len(values) for values in coords.values())
    if skills is None:
        n_bytes = 8 * n_terms * len(batch) * len(select.columns)
        if n_bytes > MAX_RESULT_BYTES:
            raise InputError(
                f"the result must take up at most {MAX_RESULT_BYTES / 1e9:.1f} GB; it would take {n_bytes / 1e9:.1f}: "
                "choose layers, positions or fewer sequences, or take means with skills"
            )
    hooks = component_hooks(model)
    hooks |= {f"blocks.{layer}.{hook}" for layer in chosen for hook in split.hooks} if split else set()
    floats = _floats(model, batch, len(select.columns)) + 3 * n_terms * len(select.columns)
    runs = readings(model, batch, what, select.columns, hooks, floats_per_prompt=floats, max_bytes=max_bytes)
    values = select.gather(_terms(model, split, chosen, runs))
    labels = batch.labels(key=coords["key"]) if "key" in coords else {}
    return _dataset(values, coords, select, attrs=_attrs(model, batch, what, select)).assign_coords(labels)


def _terms(
    model: HookedModel, split: _Split | None, layers: Sequence[int], runs: Iterator[tuple[slice, Reading]]
) -> Iterator[tuple[slice, dict[str, Tensor]]]:
    """Every term by its label if by component, else `attribution` and `rest`; in both cases `logit_difference`."""
    for rows, reading in runs:
        terms = component_terms(model, reading)
        terms |= hooks_term(model, terms, reading)
        if split is not None:
            begin = tuple(f"L{layer}{split.labels}" for layer in layers)
            rest = [term for label, term in terms.items() if not (split.labels and label.startswith(begin))]
            split_up = torch.stack([split.terms(model, reading, layer) for layer in layers], 2)
            left = 0 if split.labels else split_up.sum((2, 3))
            terms = {"attribution": split_up, "rest": torch.stack(rest).sum(0) - left}
        yield rows, {**terms, "logit_difference": reading.truth}


def _dataset(
    values: dict[str, Tensor], coords: dict[str, Sequence[int]], select: Selection, *, attrs: dict[str, Any]
) -> xr.Dataset:
    difference = values.pop("logit_difference")
    arrays = {"logit_difference": (select.dims, to_numpy(difference))}
    if coords:
        arrays["rest"] = (select.dims, to_numpy(values["rest"]))
        dims, attribution, own = tuple(coords), values["attribution"], dict(coords)
    else:
        dims, attribution = ("component",), torch.stack(list(values.values()), -1)
        own = {"component": list(values), "kind": ("component", [kind_of(label) for label in values])}
    arrays = {"attribution": ((*select.dims, *dims), to_numpy(attribution)), **arrays}
    result = xr.Dataset(arrays, coords={**own, **select.coords}, attrs=attrs)
    return result.transpose(*dims, *select.dims)


def _coords(model: HookedModel, batch: Batch, by: By, layers: Sequence[int]) -> dict[str, Sequence[int]]:
    """Coordinates of what is split, by axis; none by component."""
    heads = range(model.cfg.n_heads)
    return {
        "component": {},
        "head": {"layer": layers, "head": heads},
        "neuron": {"layer": layers, "neuron": range(model.cfg.d_mlp or 0)},
        "feature": {"layer": layers, "neuron": range(_n_features(model, layers) if by == "feature" else 0)},
        "source": {"layer": layers, "head": heads, "key": range(batch.inputs.shape[1])},
    }[by]


def _layers(model: HookedModel, by: By, layers: Sequence[int] | None) -> list[int]:
    n_layers = model.cfg.n_layers
    if by == "component" and layers is not None:
        raise InputError(f"layers chooses what is split by head, neuron or source; got {list(layers)} by component")
    if by == "neuron" and model.cfg.attn_only:
        raise InputError("by must be component, head or source for a model without MLPs; got 'neuron'")
    everywhere = site_layers(model, "feature") if by == "feature" else range(n_layers)
    chosen = list(everywhere if layers is None else layers)
    if not chosen or len(set(chosen)) < len(chosen):
        raise InputError(f"layers must name one or more layers, each once (none: all); got {chosen}")
    for layer in chosen:
        in_range("layers", layer, 0, n_layers - 1)
    return chosen


def _n_features(model: HookedModel, layers: Sequence[int]) -> int:
    """Number of features in each of some layers, which must have as many."""
    counts = {layer_dictionary(model, layer).n_features for layer in layers}
    if len(counts) > 1:
        raise InputError(f"layers must have dictionaries of as many features; they have {sorted(counts)}: name some")
    return counts.pop()


def _floats(model: HookedModel, batch: Batch, n_columns: int) -> int:
    """About how many numbers a forward pass and the terms by component need for one sequence."""
    cfg, n_pos = model.cfg, batch.inputs.shape[1]
    layer = cfg.n_heads * (2 * cfg.d_head + 2 * n_pos) + 4 * cfg.d_model + 2 * (cfg.d_mlp or 0)
    return n_pos * cfg.n_layers * layer + 4 * n_columns * cfg.d_vocab


def _attrs(model: HookedModel, batch: Batch, what: Contrast, select: Selection) -> dict[str, Any]:
    kind = model.cfg.normalization_type
    return {
        "unit": "nats, a difference of logits",
        "contrast": what.name,
        "final_normalisation": "none" if kind is None else f"{kind}: {FROZEN}",
        "value_bias": "in the term of its head",
        "n": len(batch),
        "weights": normalisation_processing(model),
        **select.attrs,
    }
