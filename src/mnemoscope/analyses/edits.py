r"""Tests whether a model uses what a probe reads: activations are erased, steered or swapped inside a subspace.

With x the activation on the clean prompt, P x its part in the subspace of a latent (`subspaces`) and m the class means,
what is added to x is

- `erase`: P (mean - x): every sequence has the same part inside and the rest stays (Elazar et al. 2021, "Amnesic
  probing");
- `steer`: P (m[class of the other prompt] - m[own class]), a step along the difference of class means;
- `swap`: P (x of the other prompt - x), an interchange intervention in the subspace (Geiger et al. 2024, "Finding
  alignments between interpretable causal variables and distributed neural representations"), without learning.

Two controls: `random`, vectors of the same length, row by row, in random subspaces of the same rank: what any
disturbance of this size costs. And `shuffled`, the same edit with the subspaces of permuted labels: what the procedure
costs without the latent. Where the latent is all that varies at the site, permuted labels span it too, and swapping
cannot differ from patching the site.

It shows that the answer depends on what lies in these directions at this site, given the rest of the model as it is,
and in the way that the other prompt predicts. It does not show that nothing but the latent lies there: that takes
partners that differ in everything else too. Nor does it show that no other site carries it. A swapped activation may be
one that the model never produces. Where a control costs as much, erasing says nothing: `edit` asks the sharper question
of where the answer goes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.analyses.forward import Outcome, answer_scores, check_fits, read_logits_at, to_log_probs
from mnemoscope.analyses.probe_rows import latent_values
from mnemoscope.analyses.probes import check_site, site_neurons, site_positions, site_vectors
from mnemoscope.analyses.subspaces import Subspace
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import Batch, check_is_batch
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.metrics import ACCURACY, LOGIT_DIFF, Metric, check_metric, is_correct
from mnemoscope.core.numerics import to_numpy
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel, ModelLike, resolve_model
from mnemoscope.core.seeding import generator
from mnemoscope.core.site import Site
from mnemoscope.core.skills import Skills, check_skills, skill_means
from mnemoscope.engine.budget import split_into_passes
from mnemoscope.interventions.measurement import weight_processing
from mnemoscope.interventions.reading import logits_at
from mnemoscope.interventions.writing import check_written, complete_hooks


def activations(model: HookedModel, batch: Batch, subspace: Subspace) -> Float[Tensor, "batch pos width"]:
    """The vectors at the site of a subspace."""
    check_fits(model, batch)
    check_site(model, subspace.site)
    (x,) = site_vectors(model, batch, [subspace.site])
    if x.shape[-1] != subspace.basis.shape[1]:
        raise InputError(
            f"the subspace is of vectors of {subspace.basis.shape[1]} numbers and {subspace.site} holds {x.shape[-1]}; "
            "take the model that it was found in"
        )
    return x


def random_displacements(
    subspace: Subspace, displacement: Float[Tensor, "batch pos width"], n_random: int, seed: int
) -> list[Float[Tensor, "batch pos width"]]:
    """A displacement turned into random subspaces, as long in every row (stream `random directions`)."""
    stream, inside = generator(seed, "random directions"), displacement @ subspace.basis.T
    shape = subspace.basis.T.shape
    draws = [torch.randn(shape, generator=stream, dtype=displacement.dtype) for _ in range(n_random)]
    return [inside @ torch.linalg.qr(draw)[0].T.to(displacement) for draw in draws]


@torch.no_grad()
def run_displaced(
    model: HookedModel,
    batch: Batch,
    site: Site,
    displacement: Float[Tensor, "batch pos width"],
    where: Bool[Tensor, "batch pos"],
    use: Outcome,
    **options: Any,
) -> dict[str, Float[Tensor, "batch pos ..."]]:
    """The outcome `use` of the logits at `where` with a displacement added at a site; `options` as `read_at`."""
    check_written(model, site.kind, [site.layer])
    moved = displacement * site_positions(site, batch)[..., None]

    def run(rows: slice, some: Tensor) -> Tensor:
        def add(activation: Tensor, hook: Any) -> Tensor:
            part = moved[rows].to(activation)
            new = activation.expand(len(part), *activation.shape[1:]).clone()
            if site.head is not None and site.kind != "result":  # that of one head is changed in the sum of the heads
                new[:, :, site.head] += part
            else:
                new[..., slice(None) if site.neuron is None else site_neurons(site)] += part
            return new

        with complete_hooks(model, [(site.hook, add)]) as hooks:
            return logits_at(model, batch.inputs[rows], some, partial(model.run_with_hooks, fwd_hooks=hooks))

    return read_logits_at(model, batch, where, use, run=run, **options)


def edit_attrs(model: HookedModel, subspace: Subspace) -> dict[str, str]:
    """A description of the change, for results."""
    return {
        "site": str(subspace.site),
        "latent": subspace.latent,
        "directions": f"{subspace.method}, rank {len(subspace.basis)}",
        "weights": weight_processing(model),
    }


def erase(
    model: ModelLike, batch: Batch, subspace: Subspace, *, skills: Skills, n_random: int = 20, seed: int = 0
) -> xr.Dataset:
    """Skills with a latent erased at a site.

    The `model` is the one that the subspace was found in, the sequences others than it was found on. The `n_random`
    draws of the control come from the seed's stream `random directions`. Raises InputError where the subspace does not
    fit the model, skills do not fit the batch, or logits hold NaN.

    Returns:
        `accuracy` and `log_prob` (nats) over skill, the same with `clean_` before the name, and with `random_` and
        `shuffled_` over (draw, skill), (shuffle, skill).

    >>> site = ms.Site(kind="resid_post", layer=0, pos=-1)
    >>> found = ms.analyses.subspace(model, batch, "is_repeat", site=site, n_shuffles=2)
    >>> ms.analyses.erase(model, batch, found, skills=skills, n_random=2).accuracy.dims
    ('skill',)
    """
    model = resolve_model(model, batch=batch)
    in_range("n_random", n_random, 1, math.inf)
    check_skills(batch, skills)
    x = activations(model, batch, subspace)
    moves = {
        "": [subspace.inside(subspace.centre - x)],
        "clean_": [torch.zeros_like(x)],
        "random_": random_displacements(subspace, subspace.inside(subspace.centre - x), n_random, seed),
        "shuffled_": [other.inside(other.centre - x) for other in subspace.shuffled],
    }
    extra = {"random_": ("draw",), "shuffled_": ("shuffle",)}
    arrays, tested = {}, torch.stack(list(skills.values())).any(0)
    for kind, of_kind in moves.items():
        runs = [run_displaced(model, batch, subspace.site, move, tested, answer_scores) for move in of_kind]
        runs = [{name: skill_means(values, skills).tolist() for name, values in run.items()} for run in runs]
        for name in runs[0]:
            values = [run[name] for run in runs]
            arrays[kind + name] = ((*extra[kind], "skill"), values) if kind in extra else ("skill", values[0])
    attrs = {**edit_attrs(model, subspace), "n": len(batch), "log_prob_unit": "nats"}
    return xr.Dataset(arrays, coords={"skill": list(skills)}, attrs=attrs)


Edit = Literal["erase", "steer", "swap"]
EDITS: tuple[Edit, ...] = get_args(Edit)


def foil_share(
    logits: Float[Tensor, "*rows d_vocab"], answer: Int[Tensor, "*rows"], foil: Int[Tensor, "*rows"]
) -> Float[Tensor, "*rows"]:
    """1 where the foil is the most probable token, 0 elsewhere."""
    return is_correct(logits, foil).to(logits.dtype)


FOIL = Metric(name="foil", unit="share", function=foil_share, higher_is="worse")


@check_arguments
@torch.no_grad()
def edit(
    model: ModelLike,
    pairs: PromptPairs,
    subspace: Subspace,
    *,
    edits: Sequence[Edit] = EDITS,
    metrics: Sequence[Metric] = (LOGIT_DIFF, ACCURACY, FOIL),
    n_random: int = 20,
    seed: int = 0,
) -> xr.Dataset:
    """Answer against foil with the part of the clean activation inside the subspace erased, steered or swapped.

    Targets of the corrupted side are the answers that the edit should lead to. The pairs are minimal ones that differ
    in the latent; or any sequences (`partners`) with those targets. The value of a prompt is the mean over its
    scored positions. `FOIL`: how often the foil is the most probable token. Model, subspace and control are as for
    `erase`.

    Returns:
        `value` over (direction, metric, edit, prompt), with the one direction `noising`, so that `effects`
        makes shares of the difference between the prompts of it; `random` over (direction, metric, edit, draw,
        prompt) and `shuffled` over (direction, metric, edit, shuffle, prompt). Over (metric, prompt): `clean`,
        `corrupted`, and `patched`, with the whole activation at the site exchanged.

    Raises:
        InputError: As for `erase`, or a metric measures no prediction, or steering is wanted of a latent that is a
            number or has other classes.

    >>> site = ms.Site(kind="resid_post", layer=0, pos=-1)
    >>> found = ms.analyses.subspace(model, batch, "is_repeat", site=site, n_shuffles=2)
    >>> ms.analyses.edit(model, pairs, found).value.dims
    ('direction', 'metric', 'edit', 'prompt')
    """
    model = resolve_model(model)
    in_range("n_random", n_random, 1, math.inf)
    for argument, given in (("edits", list(edits)), ("metrics", [metric.name for metric in metrics])):
        if not given or len(set(given)) < len(given):
            raise InputError(f"{argument} must name at least one, each once; got {', '.join(given) or 'none'}")
    x, other = (activations(model, side, subspace) for side in (pairs.clean, pairs.corrupted))
    runs: list[Tensor] = []
    for one in edits:
        moves = [_displacement(one, of, pairs, x, other) for of in (subspace, *subspace.shuffled)]
        runs += [*moves, *random_displacements(subspace, moves[0], n_random, seed)]
    read = _EditedRuns(model=model, site=subspace.site, metrics=metrics, seed=seed)
    pieces = [
        read.values(pairs.select(rows), [move[rows] for move in (*runs, other - x)])
        for rows in torch.arange(len(pairs), device=x.device).split(read.n_pairs_at_once(pairs))
    ]
    clean, corrupted, *edited, patched = np.concatenate(pieces, -1)
    values = np.array(edited).reshape(len(edits), -1, *clean.shape)
    runs_of = np.moveaxis(values[None], 3, 1)  # direction metric edit run prompt
    n_shuffles, dims = len(subspace.shuffled), ("direction", "metric", "edit")
    return xr.Dataset(
        {
            "value": ((*dims, "prompt"), runs_of[:, :, :, 0]),
            "shuffled": ((*dims, "shuffle", "prompt"), runs_of[:, :, :, 1 : 1 + n_shuffles]),
            "random": ((*dims, "draw", "prompt"), runs_of[:, :, :, 1 + n_shuffles :]),
            "clean": (("metric", "prompt"), clean),
            "corrupted": (("metric", "prompt"), corrupted),
            "patched": (("metric", "prompt"), patched),
        },
        coords={
            "direction": ["noising"],
            "metric": [metric.name for metric in metrics],
            "unit": ("metric", [metric.unit for metric in metrics]),
            "edit": list(edits),
            "prompt": range(len(pairs)),
        },
        attrs={**edit_attrs(model, subspace), "pairs": pairs.name, "n": len(pairs)},
    )


def _displacement(one: Edit, subspace: Subspace, pairs: PromptPairs, x: Tensor, other: Tensor) -> Tensor:
    one_of("an edit", one, EDITS)
    match one:
        case "erase":
            return subspace.inside(subspace.centre - x)
        case "swap":
            return subspace.inside(other - x)
        case "steer":
            own, to = (subspace.mean_of(side) for side in (pairs.clean, pairs.corrupted))
            return subspace.inside(to - own)


_TRIED = 8
"""Places at which the check of the metrics looks."""
_COMPARED = 96
"""Bytes of a logit where metrics compare log-probabilities with those of the clean prompt, which are kept."""


@dataclass(frozen=True, kw_only=True)
class _EditedRuns:
    """The readings of edited runs: metrics at the scored positions of some pairs."""

    model: HookedModel
    site: Site
    metrics: Sequence[Metric]
    seed: int

    def n_pairs_at_once(self, pairs: PromptPairs) -> int:
        """The number of pairs at once, so that what is kept and what is at work fits in the budget."""
        rows, _ = split_into_passes(self.model, pairs.scored, bytes_per_logit=_COMPARED)[0]
        return rows.stop - rows.start

    def values(self, pairs: PromptPairs, moves: Sequence[Tensor]) -> Float[np.ndarray, "run metric prompt"]:
        """The metrics of the clean side, of the corrupted one and of the clean one under each displacement."""
        scored = pairs.scored
        clean = torch.cat(
            [
                to_log_probs(logits_at(self.model, pairs.clean.inputs[rows], some))
                for rows, some in split_into_passes(self.model, scored)
            ]
        )
        answer, foil = (side[scored][:_TRIED].to(clean.device) for side in (pairs.answer, pairs.foil))
        for metric in self.metrics:
            check_metric(metric, clean[:_TRIED], answer, foil, generator=generator(self.seed, "metric"))

        def use(logits: Tensor, answer: Tensor, foil: Tensor, number: Tensor) -> dict[str, Tensor]:
            log_probs = to_log_probs(logits)
            return {
                str(i): metric(log_probs, answer, foil, clean[number]).double() for i, metric in enumerate(self.metrics)
            }

        places = scored.flatten().cumsum(0).view(scored.shape) - 1
        told: Any = {"beside": [pairs.answer, pairs.foil, places], "bytes_per_logit": _COMPARED}
        unedited = [read_logits_at(self.model, side, scored, use, **told) for side in (pairs.clean, pairs.corrupted)]
        edited = [run_displaced(self.model, pairs.clean, self.site, move, scored, use, **told) for move in moves]
        return np.array([self._mean(run, scored) for run in (*unedited, *edited)])

    @staticmethod
    def _mean(found: Mapping[str, Tensor], scored: Bool[Tensor, "batch pos"]) -> Float[np.ndarray, "metric prompt"]:
        total = torch.stack([torch.where(scored, values, 0).sum(-1) for values in found.values()])
        return to_numpy(total / scored.sum(-1))


def draw_differing_sequences(batch: Batch, latent: str, *, seed: int = 0) -> Int[Tensor, " batch"]:
    """For each sequence another one in which a latent differs, from the seed's stream `partners`.

    `batch.select(partners(...))` with the answers that the exchange should lead to as targets is the other side of
    `PromptPairs`. Raises InputError where there is no such latent, it differs within a sequence, or it has one value
    only.

    >>> partner = ms.analyses.draw_differing_sequences(batch, "is_repeat")
    >>> (batch.latents["is_repeat"][partner] != batch.latents["is_repeat"]).all().item()
    True
    """
    check_is_batch(batch)
    values = latent_values(batch, latent).cpu()
    if (values != values[:, :1]).any():
        raise InputError(f"latent {latent} must hold one value per sequence; take another, or make pairs by hand")
    other = values[:, :1] != values[:, 0]
    if not other.any(1).all():
        raise InputError(f"latent {latent} has one value in all sequences; take more sequences or another latent")
    drawn = torch.multinomial(other.double(), 1, generator=generator(seed, "partners", latent))[:, 0]
    return drawn.to(batch.inputs.device)
