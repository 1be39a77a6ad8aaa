"""The clamps of a run in training, and their test before it: a clamp that names or reaches nothing is refused."""

import torch
from torch import Tensor

from mnemoscope.core.clamp import Clamp
from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import HookedModel, has_linear_attention
from mnemoscope.core.seeding import generator
from mnemoscope.core.site import ParamSite, Site
from mnemoscope.core.specification import RunSpec
from mnemoscope.interventions.clamping import Clamping, make_clamping
from mnemoscope.interventions.graph import check_exists
from mnemoscope.interventions.run import weight_at
from mnemoscope.models.building import (
    build_untrained,
    detached_parameters,
    held_patterns,
    matching_names,
    zero_patterns,
)
from mnemoscope.training.learner import Learner

N_TRIED = 64
"""Sequences on which clamps are tried."""
_NOISE = 0.5
_SMALLEST = 1e-5
"""Relative change of the outputs, above the rounding of two ways to compute them."""


def check_clamps(spec: RunSpec) -> None:
    """Refuse clamps that name nothing in the model or the task, do not fit the place, or change no scored output.

    Each is tried by itself and whole, on a model of the architecture with random weights.
    """
    clamping = make_clamping(spec)
    if clamping is None:
        return
    model = build_untrained(spec, own=True)
    params = detached_parameters(model)
    held = matching_names(held_patterns(spec.model), params)
    for clamp in spec.recipe.clamps:
        _check_places(clamp, clamping, model, held)
    stream = generator(spec.seed, "clamps")
    batch = spec.task.sample(N_TRIED, split="train", generator=stream)
    positions = batch.scored.any(0).nonzero()[:, 0]
    learner = Learner(spec.model, spec.recipe, [_with_noise(params, spec, stream)], [{}])
    free = learner.evaluate(batch.inputs[None], positions)[0]
    for clamp in spec.recipe.clamps:
        if clamp.kind == "hold":
            continue
        try:
            clamped = learner.evaluate(batch.inputs[None], positions, clamping.hold([(clamp, 1.0)], [batch]))[0]
        except (RuntimeError, IndexError) as error:
            raise InputError(f"the clamp {clamp} does not fit its place: {' '.join(str(error).split())}") from error
        change = (clamped - free)[batch.scored[:, positions]].abs()
        if not (change > _SMALLEST * free.abs().max()).any() and not change.isnan().any():
            raise InputError(
                f"the clamp {clamp} reaches nothing: with it the scored outputs of {N_TRIED} sequences stay the same; "
                "take a place that they depend on"
            )


def _check_places(clamp: Clamp, clamping: Clamping, model: HookedModel, held: frozenset[str]) -> None:
    weights = [place for place in clamp.places if isinstance(place, ParamSite)]
    for place in weights:
        weight_at(model, place)
        if clamp.kind == "hold" and place.parameter in held:
            raise InputError(f"the clamp {clamp} reaches nothing: the architecture holds {place.parameter} already")
    if clamp.kind == "knockout" and has_linear_attention(model):
        raise InputError(f"the clamp {clamp} needs a softmax, which attention does not have here: zero the pattern")
    if not clamp.is_at_weights:
        part = clamping.part(clamp)
        for site in (*part.sites, *part.reads):
            assert isinstance(site, Site)
            check_exists(model, site)


def _with_noise(params: dict[str, Tensor], spec: RunSpec, stream: torch.Generator) -> dict[str, Tensor]:
    """The parameters with noise, save those that the architecture holds at zero."""
    off = matching_names(zero_patterns(spec.model), params)
    return {
        name: value if name in off else value + _NOISE * torch.randn(value.shape, generator=stream, dtype=value.dtype)
        for name, value in params.items()
    }
