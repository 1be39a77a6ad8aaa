"""Ablation: the skills that a model loses when a part of it is removed.

Sets of sites (a head, an MLP, a neuron, a position, an attention path, any group of them) are replaced, one set at a
time. The replacement is zero, the mean over a reference set, or the activation in another sequence of that set. For
each skill: accuracy and mean log-probability of the answer (nats), clean and ablated; where answers are vectors the
mean squared error.

It shows that a part is needed for a skill on this distribution, given the rest of the model as it is. It does not show
what the part computes, and a part that another one can stand in for looks unneeded.

*Targets* are names and the sites that are removed together under each, in the order of the model: `heads_and_mlps`,
`positions`, `paths`, `subsets`, or any mapping.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope.analyses.forward import answer_scores, check_fits, read_logits_at, skill_losses
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import Batch, Named
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.intervention import REMOVALS, REPLACEMENTS, Intervention, RemovalKind, make_removal
from mnemoscope.core.numerics import to_numpy
from mnemoscope.core.protocols import HookedModel, ModelLike, resolve_model
from mnemoscope.core.site import ATTENTION, Kind, Position, Site
from mnemoscope.core.skills import Skills, check_masks, prompt_means, skill_means
from mnemoscope.engine.budget import MAX_BYTES
from mnemoscope.interventions.recordings import Recordings, record_bytes
from mnemoscope.interventions.run import run_at

MAX_IN_SUBSETS = 12
BY_PROMPT = "_by_prompt"
"""Names of variables that keep the prompts end so."""
AblationTargets = dict[str, tuple[Site, ...]]


@check_arguments
def ablate(
    model: ModelLike,
    batch: Batch,
    *,
    skills: Skills,
    reference: Batch,
    targets: Mapping[str, Sequence[Site]] | None = None,
    kinds: Sequence[RemovalKind] = REPLACEMENTS,
    within: str | None = None,
    per_prompt: bool = False,
    max_bytes: int | None = None,
    seed: int = 0,
) -> xr.Dataset:
    """Skills with one target removed at a time.

    Args:
        model: A run, a subject or any hooked model whose vocabulary and context are large enough.
        batch: Sequences that test the skills.
        skills: For each skill the positions whose answer it alone gives (`task.skills(batch)`).
        reference: Sequences that means and resampled activations come from; as long as those of `batch`.
        targets: Name to the sites that are removed together; None: every head and every MLP by itself.
        kinds: The ablations; `knockout` is for sites of kind scores.
        within: Name of a latent: means and resampled activations come from sequences of the same class, so that
            information about the class itself stays. None: from all.
        per_prompt: Whether results have the mean of every prompt too, for `ms.audit`.
        max_bytes: Bound on what is allocated on the way; results do not depend on it. None: 256 MiB for forward passes
            and as much for recordings of the reference, or what one sequence and one target need.
        seed: Resampling draws from this seed's stream `resample`.

    Returns:
        `accuracy`, `log_prob` and `accuracy_error` (the standard error, over sequences, of the drop in accuracy) over
        (kind, component, skill), `clean_accuracy` and `clean_log_prob` over skill; NaN for a skill that no sequence
        of the batch tests. With `per_prompt` also `accuracy_by_prompt`, `clean_accuracy_by_prompt` and so on, along
        `prompt`; NaN where a prompt does not test the skill. Where answers are vectors `loss`, `loss_error` (of its
        rise) and `clean_loss` instead, and the parts of the answers are skills too, tested at every scored position.
        For prompts made of texts, targets with a position have a coordinate with the token there (`pos_token`).

    Raises:
        InputError: The model is too small for the batch, a site does not exist, the reference has another length, or
            `max_bytes` does not suffice.

    >>> lost = ms.ablate(model, batch, skills=skills, reference=batch, kinds=["mean"])
    >>> lost.accuracy.sel(kind="mean", skill="elimination").to_series().round(1).to_dict()
    {'L0H0': 0.3, 'L0H1': 1.0, 'L0 MLP': 0.2}
    """
    model = resolve_model(model, batch=batch, reference=reference)
    check_fits(model, batch, vectors=True)
    check_masks(batch, skills)
    for kind in kinds:
        one_of("the kind of an ablation", kind, REMOVALS)
    if targets is None:
        targets = heads_and_mlps(model)
    if not targets:
        raise InputError("targets must name at least one set of sites; got none")
    source = Named(name="reference", value=reference)
    placed = [[site for site in sites if isinstance(site, Site)] for sites in targets.values()]
    kept = 0 if {*kinds} <= {"zero", "knockout"} else max(record_bytes(model, reference, sites) for sites in placed)
    recordings = Recordings(model, max_bytes=None if max_bytes is None else kept, directly=True)
    every = {site for sites in placed for site in sites}
    if kept and max_bytes is None and record_bytes(model, reference, every) <= MAX_BYTES:
        recordings.prepare((source, site) for site in every)  # in one pass, not one for each layer
    tested = torch.stack([*skills.values(), *([batch.scored] if batch.has_vectors else [])]).any(0)
    outcome = _vectors if batch.has_vectors else answer_scores

    def measured(interventions: Sequence[Intervention]) -> _Scores:
        def run(rows: slice, where: Tensor) -> Tensor:
            return run_at(model, batch, interventions, where, rows=rows, seed=seed, recordings=recordings)

        found = read_logits_at(model, batch, tested, outcome, run=run, max_bytes=max_bytes, kept=kept)
        return _scores(found, batch, skills)

    clean = measured([])

    def means(scores: _Scores) -> dict[str, Tensor]:
        return {**_skill_means(scores, clean), **(_means_by_prompt(scores) if per_prompt else {})}

    cells = []
    for kind in kinds:
        removed = ([make_removal(kind, site, source, within) for site in sites] for sites in targets.values())
        cells += [means(measured(interventions)) for interventions in removed]
    dims, names = ("kind", "component", "skill"), list(next(iter(clean.values())))
    whole = means(clean)
    stacked = {name: torch.stack([cell[name] for cell in cells]).unflatten(0, (len(kinds), -1)) for name in whole}
    along = {name: ("prompt",) if name.endswith(BY_PROMPT) else () for name in whole}
    intact = [name for name in whole if not name.endswith("_error")]
    return xr.Dataset(
        {
            **{name: ((*dims, *along[name]), to_numpy(values)) for name, values in stacked.items()},
            **{f"clean_{name}": (("skill", *along[name]), to_numpy(whole[name])) for name in intact},
        },
        coords={
            "kind": list(kinds),
            "component": list(targets),
            "skill": names,
            **target_labels(targets, batch),
            **(batch.prompt_labels() if per_prompt else {}),
        },
        attrs={
            **({"loss_unit": batch.loss_unit} if batch.has_vectors else {"log_prob_unit": "nats"}),
            "n": len(batch),
            "n_reference": len(reference),
            "reference": str(source),
            "within": within or "all sequences",
            "weights": "unprocessed",
        },
    )


_Scores = dict[str, dict[str, tuple[Float[Tensor, "batch pos"], Bool[Tensor, "batch pos"]]]]
"""By measure and skill: its value everywhere, and where the skill is tested."""


def _vectors(outputs: Float[Tensor, "place d_output"], targets: Tensor) -> dict[str, Tensor]:
    return {"outputs": outputs.double()}


def _scores(found: Mapping[str, Tensor], batch: Batch, skills: Skills) -> _Scores:
    if batch.has_vectors:
        return {"loss": skill_losses(found["outputs"], batch, skills)}
    return {
        name: {skill: (values, mask.to(values.device)) for skill, mask in skills.items()}
        for name, values in found.items()
    }


def _skill_means(scores: _Scores, clean: _Scores) -> dict[str, Tensor]:
    """Means over the positions of each skill, and the standard error of the change of the first measure."""
    result = {
        name: torch.cat([skill_means(v, {s: mask}) for s, (v, mask) in of.items()]) for name, of in scores.items()
    }
    first = next(iter(scores))
    changes = [
        (before[mask] - after[mask]).double()
        for (before, mask), (after, _) in zip(clean[first].values(), scores[first].values(), strict=True)
    ]
    errors = [(d - d.mean()).square().mean().sqrt() / max(len(d) - 1, 1) ** 0.5 for d in changes]
    return {**result, f"{first}_error": torch.stack(errors)}


def _means_by_prompt(scores: _Scores) -> dict[str, Tensor]:
    """The mean of every prompt over the positions of each skill."""
    return {
        f"{name}{BY_PROMPT}": torch.stack([prompt_means(values, mask) for values, mask in of.values()])
        for name, of in scores.items()
    }


def components(model: HookedModel) -> list[Site]:
    """Every head (at z), then every MLP (its output), of a model."""
    heads = [Site(kind="z", layer=n, head=h) for n in range(model.cfg.n_layers) for h in range(model.cfg.n_heads)]
    return heads + ([] if model.cfg.attn_only else [Site(kind="mlp_out", layer=n) for n in range(model.cfg.n_layers)])


def heads_and_mlps(model: HookedModel) -> AblationTargets:
    """Every head and every MLP."""
    return _target_names(components(model))


def position_targets(model: HookedModel, at: int | Sequence[Position]) -> AblationTargets:
    """The output of every head and every MLP at each of some positions, one at a time.

    Positions are numbers, names or names of latents; an int stands for that many positions from the start.
    """
    places = range(at) if isinstance(at, int) else at
    return _target_names(replace(site, pos=pos) for site in components(model) for pos in places)


def target_labels(targets: Mapping[str, Sequence[Site]], batch: Batch) -> dict[str, tuple[str, list[str]]]:
    """Tokens at each target, along `component`: `pos_token`, or `query_token` and `key_token`.

    Where positions have names these are given instead, as `pos_name` and so on. An entry is empty for a target without
    a single position. A coordinate is missing where no target has one, or neither tokens nor positions have names.
    """
    if batch.symbol is None and not batch.positions:
        return {}
    kind, names = ("name", batch.positions) if batch.positions else ("token", batch.common_tokens)
    found = {"pos": [], "query": [], "key": []}
    for sites in targets.values():
        for axis, tokens in found.items():
            at = {_place(site, axis) for site in sites}
            pos = at.pop() if len(at) == 1 else None
            tokens.append(names[pos] if isinstance(pos, int) else pos if isinstance(pos, str) else "")
    return {f"{axis}_{kind}": ("component", tokens) for axis, tokens in found.items() if any(tokens)}


def _place(site: Site, axis: str) -> Position | None:
    if site.kind in ATTENTION:
        return {"query": site.pos, "key": site.key}.get(axis)
    return site.pos if axis == "pos" else None


@check_arguments
def attention_paths(
    model: ModelLike,
    n_pos: int,
    *,
    kind: Kind = "scores",
    queries: Sequence[int] | None = None,
    names: Sequence[str] = (),
) -> AblationTargets:
    """Every attention path: from one key to one query through one head.

    `kind` is `scores` for the ablation `knockout` (the weight is spread over the other keys) or `pattern` for `zero`
    (the weight is lost). With `queries` only paths to these positions are taken. `names` of all positions name the
    paths; without them their numbers do.

    >>> paths = ms.analyses.attention_paths(model, 9, queries=[8])
    >>> len(paths), next(iter(paths))
    (18, 'L0H0 0→8')
    """
    model = resolve_model(model)
    one_of("kind", kind, ("scores", "pattern"))
    for query in queries or ():
        in_range("a query", query, 0, n_pos - 1)
    places = names or range(n_pos)
    return {
        f"L{layer}H{head} {places[key]}→{places[query]}": (Site(kind=kind, layer=layer, head=head, pos=query, key=key),)
        for layer in range(model.cfg.n_layers)
        for head in range(model.cfg.n_heads)
        for query in (range(n_pos) if queries is None else queries)
        for key in range(query + 1)
    }


def target_subsets(targets: Mapping[str, Sequence[Site]]) -> AblationTargets:
    """Every set of targets but the empty one, the smaller sets first; raises InputError where these are too many."""
    in_range("the number of targets whose subsets are formed", len(targets), 1, MAX_IN_SUBSETS)
    chosen = [names for size in range(1, len(targets) + 1) for names in combinations(targets, size)]
    return {" + ".join(names): tuple(site for name in names for site in targets[name]) for names in chosen}


def _target_names(sites: Iterable[Site]) -> AblationTargets:
    return {str(site): (site,) for site in sites}
