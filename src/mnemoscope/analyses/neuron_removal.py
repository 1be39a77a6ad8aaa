r"""The skills that are lost when a neuron, a group of neurons, or all but the top k of a layer are removed.

A neuron's activation (`post`) is replaced at all positions by zero, by its mean over a reference set, or by its
activation in another sequence of that set. For each skill: accuracy and mean log-probability of the answer (nats).

It shows that neurons are needed for a skill on this distribution, given the rest of the model as it is. Neurons that
can stand in for each other all look unneeded one at a time: remove them as a group, or see `neuron_shares`. A fall of
the log-probability is no proof of a memory: any neuron that the answer depends on has one.

*Shares.* On one half of the sequences neurons are ranked by what removing one of them costs: the fall of the skill's
mean log-probability. On the other half the first k are

- kept while the rest of the layer is removed: fraction = (score - none) / (all - none),
- removed while the rest is kept: fraction lost = (all - score) / (all - none),

where `all` is the intact model and `none` the one with the whole layer removed. k random neurons are the comparison. A
fraction of 1 says that the k neurons alone hold what the layer adds to the skill; a fraction lost can exceed 1: half of
a mechanism can be worse than none. Kept and removed differ where neurons stand in for each other or work only together.
A ranking by removal one at a time is not the best set of k, and shares do not show that neurons store anything.

*Where shares are given.* The denominator must not be noise. A share is given only where the model has the skill and the
layer adds to it. The first takes an accuracy at least `MIN_SKILL` above that of the best constant answer; the second a
difference, intact - layer removed, of at least `MIN_CARRIED` and at least `N_ERRORS` standard errors. Of 60 untrained
models none had an accuracy more than .1 above chance, though removing the layer changed it by up to .1 (means) and .3
(zeros): random functions of the input are not neutral.

*Computation.* Removing neurons changes what the layer's MLP writes, and nothing before it. So the model runs up to the
MLP once, and from there on once for every set, all sets folded into the batch. After the last layer positions no longer
mix: only the positions at which a skill is tested go on to the final normalisation and the unembedding. Both are exact.
What the MLP writes is computed anew and not corrected by a difference, whose rounding errors would remember the answer.
A model that is no HookedTransformer cannot start at a layer: it runs from the tokens for every set.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import xarray as xr
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.analyses.ablation import REPLACEMENTS, RemovalKind, make_removal
from mnemoscope.analyses.forward import answer_scores, check_fits
from mnemoscope.analyses.units import LayerUnits, Units, layer_units
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import Batch, Named
from mnemoscope.core.dictionary_places import written_site
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.intervention import LowRank
from mnemoscope.core.numerics import to_numpy
from mnemoscope.core.protocols import HookedModel, ModelLike, evaluation_mode, resolve_model
from mnemoscope.core.seeding import generator
from mnemoscope.core.site import Site
from mnemoscope.core.skills import SkillPlaces, Skills, random_halves, skill_places
from mnemoscope.engine.budget import LOG_PROBS, n_rows_at_once, output_width, split_into_passes
from mnemoscope.interventions.reading import logits_at
from mnemoscope.interventions.recordings import Recordings
from mnemoscope.interventions.replacements import make_replacer
from mnemoscope.interventions.writing import check_written, is_classic
from mnemoscope.models.attention import run_from_layer

RemovalScores = dict[str, Float[Tensor, "set skill"]]


@dataclass(frozen=True, kw_only=True, eq=False)
class NeuronRemovals:
    """A layer's neurons, as they are (`post`) and as they would be if they were removed (`new`).

    A place is read from `row` at position `column`. Without `residual`, the stream before the MLP is added, the model
    must run from the tokens. With it a row of the last layer is a place; any other row is a sequence.
    """

    model: HookedModel
    units: LayerUnits
    post: Float[Tensor, "row pos neuron"]
    new: Float[Tensor, "row pos neuron"]
    row: Int[Tensor, " place"]
    column: Int[Tensor, " place"]
    places: SkillPlaces
    tokens: Int[Tensor, "batch all_pos"]
    residual: Float[Tensor, "row pos d_model"] | None


@torch.no_grad()
def prepare_removals(
    model: HookedModel,
    batch: Batch,
    *,
    skills: Skills,
    reference: Batch,
    units: LayerUnits,
    kind: RemovalKind,
    seed: int = 0,
) -> NeuronRemovals:
    """Record what removals of a `kind` need; other arguments as for `neuron_effects`."""
    one_of("the kind of an ablation", kind, REPLACEMENTS)
    assert units.site.layer is not None
    layer = units.site.layer
    check_fits(model, batch)
    places = skill_places(batch, skills)
    source = Named(name="reference", value=reference)
    intervention = make_removal(kind, units.site, source)
    assert not isinstance(intervention, LowRank)
    replaced = make_replacer(intervention, batch, Recordings(model), seed)
    stream = Site(kind="resid_mid" if units.mlp else "resid_post", layer=layer)
    names = [stream.hook, units.site.hook]
    pieces = []
    for inputs in batch.inputs.split(n_rows_at_once(model, batch.inputs.shape[1])):
        with evaluation_mode(model):
            _, cache = model.run_with_cache(inputs, names_filter=names, stop_at_layer=layer + 1)
        pieces.append([cache[name] for name in names])
    residual, post = (torch.cat(piece) for piece in zip(*pieces, strict=True))
    new = replaced(post).expand_as(post)
    row, column = places.sequence, places.pos
    if not is_classic(model):
        check_written(model, units.site.kind, [layer])
        residual = None
    elif not units.mlp and written_site(model, layer).kind not in ("mlp_out", "resid_post"):
        residual = None  # what features write is read by other parts of the block
    elif layer == model.cfg.n_layers - 1:
        residual, post, new = (values[row, column][:, None] for values in (residual, post, new))
        row, column = torch.arange(len(row), device=row.device), torch.zeros_like(row)
    if residual is not None and not units.mlp:  # the stream without what they write
        residual = residual - (post @ units.value + units.bias)
    return NeuronRemovals(
        model=model,
        units=units,
        post=post,
        new=new,
        row=row,
        column=column,
        places=places,
        tokens=batch.inputs,
        residual=residual,
    )


@torch.no_grad()
def score_removals(on: NeuronRemovals, sets: Sequence[Int[Tensor, " _"]]) -> RemovalScores:
    """Skills with each set of neurons removed, and the standard errors over sequences of their drops (`..._error`)."""
    intact = next(_scores(on, [torch.arange(0)]))
    cells: dict[str, list[Tensor]] = {}
    for scores in _scores(on, sets):
        for name, values in scores.items():
            cells.setdefault(name, []).append(on.places.means(values))
            cells.setdefault(f"{name}_error", []).append(on.places.errors(intact[name] - values))
    return {name: torch.cat(parts) for name, parts in cells.items()}


def _scores(on: NeuronRemovals, sets: Sequence[Tensor]) -> Iterator[dict[str, Float[Tensor, "set place"]]]:
    """Right or wrong, and the answer's log-probability, for chunks of sets."""
    where = torch.zeros_like(on.post[..., 0], dtype=torch.bool)
    where[on.row, on.column] = True
    n_pos, per_place = where.shape[1], LOG_PROBS * output_width(on.model)
    kept = 4 * on.post[0].nbytes + int(where.sum(1).max()) * per_place
    fitting = n_rows_at_once(on.model, n_pos, kept=kept) if len(where) else 1
    step = max(1, fitting // max(1, len(where)))
    for start in range(0, len(sets), step):
        chunk = sets[start : start + step]
        found: dict[str, list[Tensor]] = {}
        for rows, some in split_into_passes(on.model, where, copies=len(chunk)):
            logits = _logits(on, [_replaced(on, neurons, rows) for neurons in chunk], rows, some)
            target = on.places.target[_place_numbers(where, rows, some)]
            for name, values in answer_scores(
                logits.unflatten(0, (len(chunk), -1)), target.expand(len(chunk), -1)
            ).items():
                found.setdefault(name, []).append(values)
        yield {name: torch.cat(values, 1) for name, values in found.items()}


def _place_numbers(where: Tensor, rows: slice, some: Tensor) -> Int[Tensor, " place"]:
    """The numbers, among all places in order, of those in a few rows."""
    number = where.flatten().cumsum(0).view(where.shape) - 1
    return number[rows][some]


def _logits(
    on: NeuronRemovals, posts: Sequence[Float[Tensor, "row pos neuron"]], rows: slice, where: Bool[Tensor, "row pos"]
) -> Float[Tensor, "place d_vocab"]:
    """At some places, of the model with each of these activations in the layer, one after the other."""
    where = where.repeat(len(posts), 1)
    if on.residual is None:
        name, tokens = on.units.site.hook, on.tokens[rows].repeat(len(posts), 1)
        hooks = [(name, lambda old, hook: torch.cat(list(posts)))]
        return logits_at(on.model, tokens, where, partial(on.model.run_with_hooks, fwd_hooks=hooks))
    units, after = on.units, (on.units.site.layer or 0) + 1
    changed = [on.residual[rows] + (post @ units.value + units.bias) for post in posts]
    return logits_at(on.model, torch.cat(changed), where, run_from_layer(on.model, after, on.tokens[rows]))


def _replaced(on: NeuronRemovals, neurons: Int[Tensor, " _"], rows: slice) -> Float[Tensor, "row pos neuron"]:
    post = on.post[rows].clone()
    post[..., neurons] = on.new[rows][..., neurons]
    return post


MIN_SKILL = 0.2
"""The amount by which accuracy must exceed that of the best constant answer."""
MIN_CARRIED = 0.05
"""The least that the layer must add to a score: accuracy, or nats."""
N_ERRORS = 3
METRICS = ("accuracy", "log_prob")
CRITERION = {"min_skill": MIN_SKILL, "min_carried": MIN_CARRIED, "n_errors": N_ERRORS}
"""For a result's attrs."""


def measurable(ends: RemovalScores, places: SkillPlaces) -> Bool[Tensor, "skill metric"]:
    """True where shares are given; `ends` are the cells of two sets: no neuron removed, and the whole layer."""
    learned = ends["accuracy"][0] - places.constant_accuracy() >= MIN_SKILL
    drops = torch.stack([ends[name][0] - ends[name][1] for name in METRICS], -1)
    errors = torch.stack([ends[f"{name}_error"][1] for name in METRICS], -1)
    return learned[:, None] & (drops >= MIN_CARRIED) & (drops >= N_ERRORS * errors)


@check_arguments
def neuron_effects(
    model: ModelLike,
    batch: Batch,
    *,
    skills: Skills,
    reference: Batch,
    layer: int = 0,
    units: Units = "neurons",
    kinds: Sequence[RemovalKind] = REPLACEMENTS,
    seed: int = 0,
) -> xr.Dataset:
    """Skills with one neuron of a layer removed at a time.

    Args:
        model: With an MLP of two matrices.
        batch: Sequences that test the skills; its weights, if it has them, count within a skill.
        skills: For each skill the positions whose answer it alone gives (`task.skills(batch)`).
        reference: Sequences that means and resampled activations come from; as long as those of `batch`.
        layer: Whose neurons.
        units: Neurons, or the features of the layer's dictionary in their place.
        kinds: Which ablations.
        seed: Resampling draws from this seed's stream `resample`.

    Returns:
        Over (kind, neuron, skill): `accuracy`, `log_prob` (nats), and the standard errors over sequences of their
        drops, `accuracy_error` and `log_prob_error`. The same with all neurons of the layer removed, `layer_...`, over
        (kind, skill). `clean_accuracy` and `clean_log_prob` over skill. `measurable` over (kind, skill, metric):
        whether the layer carries the skill, see the module.

    Raises:
        InputError: The model has no such neurons or is too small for the batch, the reference has another length,
            another kind, a skill is tested nowhere, or the logits hold NaN.

    >>> found = ms.analyses.neuron_effects(model, batch, skills=skills, reference=batch, kinds=["mean"])
    >>> found.accuracy.dims
    ('kind', 'neuron', 'skill')
    """
    model = resolve_model(model, batch=batch, reference=reference)
    n = len(layer_units(model, layer, units))
    groups = {str(neuron): [neuron] for neuron in range(n)} | {"layer": list(range(n))}
    result = group_effects(
        model, batch, groups, skills=skills, reference=reference, layer=layer, units=units, kinds=kinds, seed=seed
    ).drop_vars("size")
    by_group = [name for name in result if "group" in result[name].dims]
    whole = result[by_group].sel(group="layer", drop=True)
    single = result.isel(group=slice(0, -1)).rename(group="neuron").assign_coords(neuron=range(n))
    return single.assign({f"layer_{name}": values for name, values in whole.items()})


@check_arguments
def group_effects(
    model: ModelLike,
    batch: Batch,
    groups: Mapping[str, Sequence[int]],
    *,
    skills: Skills,
    reference: Batch,
    layer: int = 0,
    units: Units = "neurons",
    kinds: Sequence[RemovalKind] = REPLACEMENTS,
    seed: int = 0,
) -> xr.Dataset:
    """Skills with one group of neurons of a layer removed at a time.

    Arguments and errors as for `neuron_effects`. `groups` maps names to neurons that exist, and is not empty; a group
    may be empty, and groups may overlap.

    Returns:
        As `neuron_effects` without `layer_...`, with dimension `group` in place of `neuron`, and `size` over group.

    >>> halves = {"first half": range(32), "second half": range(32, 64)}
    >>> found = ms.analyses.group_effects(model, batch, halves, skills=skills, reference=batch, kinds=["mean"])
    >>> found.accuracy.dims
    ('kind', 'group', 'skill')
    """
    model = resolve_model(model, batch=batch, reference=reference)
    if not groups:
        raise InputError("groups must name at least one group of neurons; got none")
    if not kinds:
        raise InputError(f"kinds must name at least one of: {', '.join(REPLACEMENTS)}; got none")
    n = len(of_layer := layer_units(model, layer, units))
    for neuron in {neuron for group in groups.values() for neuron in group}:
        in_range("a neuron", neuron, 0, n - 1)
    ends = [torch.arange(0), torch.arange(n)]
    sets = [torch.tensor(sorted(set(group)), dtype=torch.long) for group in groups.values()]
    cells, carried = [], []
    for kind in kinds:
        on = prepare_removals(model, batch, skills=skills, reference=reference, units=of_layer, kind=kind, seed=seed)
        found = score_removals(on, [*sets, *ends])
        cells.append(found)
        carried.append(measurable({name: values[-2:] for name, values in found.items()}, on.places))
    measured = {name: to_numpy(torch.stack([cell[name] for cell in cells])) for name in cells[0]}
    dims = ("kind", "group", "skill")
    clean = {f"clean_{name}": ("skill", measured[name][0, -2]) for name in ("accuracy", "log_prob")}
    return xr.Dataset(
        {
            **{name: (dims, values[:, :-2]) for name, values in measured.items()},
            **clean,
            "measurable": (("kind", "skill", "metric"), to_numpy(torch.stack(carried))),
            "size": ("group", [len(part) for part in sets]),
        },
        coords={"kind": list(kinds), "group": list(groups), "skill": list(skills), "metric": list(METRICS)},
        attrs={
            "log_prob_unit": "nats",
            "layer": layer,
            "n": len(batch),
            "n_reference": len(reference),
            "weights": "unprocessed",
            **CRITERION,
        },
    )


PARTS = ("kept", "removed")


@check_arguments
def neuron_shares(
    model: ModelLike,
    batch: Batch,
    *,
    skills: Skills,
    reference: Batch,
    layer: int = 0,
    units: Units = "neurons",
    kind: RemovalKind = "mean",
    ks: Sequence[int] | None = None,
    n_random: int = 10,
    seed: int = 0,
) -> xr.Dataset:
    """Scores and fractions with the top k neurons of each skill kept, or removed.

    The batch, its weights, `skills`, `reference` and `units` are as for `neuron_effects`. Neurons are removed as `kind`
    says: `zero`, `mean` or `resample`. `ks` are kept or removed; none: 0, 1, 2, 4, ... and all. The first k of each of
    `n_random` orders are the comparison. Halves, random orders and resampling come from the seed's streams.

    Returns:
        `score` over (skill, part, k, metric); `random_score` with dimension draw besides; `fraction` and
        `random_fraction` of these, NaN where it is refused; `all`, `none` and `measurable` over (skill, metric);
        `neuron` over (skill, rank), the ranking. Accuracy and log-probability (nats).

    Raises:
        InputError: As `neuron_effects`; or a k is out of range, or a half lacks a skill.

    >>> found = ms.analyses.neuron_shares(model, batch, skills=skills, reference=batch, ks=[0, 8], n_random=2)
    >>> found.fraction.dims
    ('skill', 'part', 'k', 'metric')
    """
    model = resolve_model(model, batch=batch, reference=reference)
    n = len(of_layer := layer_units(model, layer, units))
    ks = [*dict.fromkeys([0, *(2**i for i in range(n.bit_length())), n])] if ks is None else list(ks)
    for k in ks:
        in_range("k", k, 0, n)
    if not ks:
        raise InputError("ks must name at least one number of neurons; got none")
    in_range("n_random", n_random, 1, math.inf)
    chosen, tested = (
        prepare_removals(model, part, skills=masks, reference=reference, units=of_layer, kind=kind, seed=seed)
        for part, masks in random_halves(batch, skills, seed=seed)
    )
    cost = -score_removals(chosen, [torch.tensor([neuron]) for neuron in range(n)])["log_prob"]
    ranking = cost.argsort(dim=0, descending=True, stable=True).T
    stream = generator(seed, "random neurons")
    random = torch.stack([torch.randperm(n, generator=stream) for _ in range(n_random)])
    ends = score_removals(tested, [torch.arange(0), torch.arange(n)])
    top = torch.stack([_curve(tested, order, ks)[:, :, i] for i, order in enumerate(ranking)])
    drawn = torch.stack([_curve(tested, order, ks) for order in random], -1).movedim(2, 0)
    whole, none = (torch.stack([ends[name][i] for name in METRICS], -1) for i in (0, 1))
    given = measurable(ends, tested.places)
    dims = ("skill", "part", "k", "metric")
    arrays = {
        "score": (dims, top),
        "random_score": ((*dims, "draw"), drawn),
        "fraction": (dims, _fraction(top, whole, none, given)),
        "random_fraction": (
            (*dims, "draw"),
            _fraction(drawn, whole[..., None], none[..., None], given[..., None]),
        ),
        "all": (("skill", "metric"), whole),
        "none": (("skill", "metric"), none),
        "measurable": (("skill", "metric"), given),
        "neuron": (("skill", "rank"), ranking),
    }
    return xr.Dataset(
        {name: (axes, to_numpy(values)) for name, (axes, values) in arrays.items()},
        coords={"skill": list(skills), "part": list(PARTS), "k": ks, "metric": list(METRICS), "rank": range(1, n + 1)},
        attrs={"layer": layer, "kind": kind, "n": len(tested.places.sequence.unique()), "log_prob_unit": "nats"}
        | CRITERION,
    )


def _curve(
    on: NeuronRemovals, order: Int[Tensor, " neuron"], ks: Sequence[int]
) -> Float[Tensor, "part k skill metric"]:
    """The first k of an order kept, and removed."""
    cells = score_removals(on, [order[k:] for k in ks] + [order[:k] for k in ks])
    return torch.stack([cells[name] for name in METRICS], -1).unflatten(0, (2, len(ks)))


def _fraction(score: Tensor, whole: Tensor, none: Tensor, given: Tensor) -> Tensor:
    """The fraction that `score`, `skill part k metric ...`, is of the others over `skill metric ...`."""
    whole, none, given = (values[:, None, None] for values in (whole, none, given))
    kept, removed = (score[:, :1] - none) / (whole - none), (whole - score[:, 1:]) / (whole - none)
    return torch.cat((kept, removed), 1).where(given, torch.nan)
