"""A trained model with the clamps that its training held, beside the model as it is.

`Run.model` is the free model: parameters are the same with clamps and without. A run from `with_clamps` gives models
that carry the clamps as hooks, so that every analysis looks at the computation that training went down. Hooks act on
what follows them; what an analysis reads off the weights themselves stays that of the free model, save where a weight
is clamped. An intervention at the place of a clamp comes after it, and a clamp that reads an activation reads what
interventions left there.

*Does not show* the model of the step before or after: the clamps are those of the update that follows the checkpoint,
with its part of a ramp. A mean is over the batch that runs at the moment.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from mnemoscope.core.batch import Batch
from mnemoscope.core.clamp import in_force
from mnemoscope.core.errors import InputError
from mnemoscope.core.seeding import generator
from mnemoscope.core.site import LOGITS
from mnemoscope.core.specification import RunSpec
from mnemoscope.engine.changes import Change
from mnemoscope.interventions.clamping import make_clamping
from mnemoscope.models.lens import HookedTransformer
from mnemoscope.models.run import Run


def with_clamps(run: Run) -> Run:
    """The same run, whose models carry the clamps of their step as hooks; its label ends in `-clamped`.

    Raises InputError where the recipe of the run has no clamps.

    >>> clamp = ms.core.Clamp(place="L0H1", value="zero")
    >>> held = ms.preset("v3", changes={"recipe.n_steps": 4, "recipe.warmup_steps": 1, "recipe.clamps": (clamp,)})
    >>> held_run = ms.train(held, Path("runs/held"))
    >>> ms.analyses.with_clamps(held_run).label == held_run.label + "-clamped"
    True
    """
    if not run.spec.recipe.clamps:
        raise InputError(f"the recipe of {run.path} has no clamps; look at the run as it is")
    return replace(run, prepare=put_clamps, view="-clamped")


def put_clamps(model: HookedTransformer, spec: RunSpec, step: int) -> None:
    """Put the clamps of a step of training on a model of that run; weights that are clamped are replaced.

    A clamp may name latents that follow from the tokens.
    """
    clamping = make_clamping(spec)
    shares = [(clamp, share) for clamp, share in in_force(spec.recipe.clamps, step).items() if clamp.kind != "hold"]
    if clamping is None or not shares:
        return
    derive = spec.task.sample(1, split="train", generator=generator(spec.seed, "clamps")).derive
    params = dict(model.named_parameters())
    sizes = clamping.hold([(clamp, share) for clamp, share in shares if clamp.is_at_weights], [])
    with torch.no_grad():
        for name, value in sizes.change_weights(params).items():
            params[name].copy_(value)
    shares = [(clamp, share) for clamp, share in shares if not clamp.is_at_weights]
    points = clamping.points([clamp for clamp, _ in shares])
    at_work: dict[str, Change] = {}
    seen: dict[str, Tensor] = {}
    last: list[RemovableHandle] = []

    def begin(module: Any, given: tuple[Tensor, ...]) -> None:
        inputs = given[0]
        nowhere = torch.zeros(inputs.shape[:2], dtype=torch.bool, device=inputs.device)
        batch = Batch(inputs=inputs, targets=inputs, scored=nowhere, derive=derive)
        held = clamping.hold(shares, [batch])
        at_work.update(held.changes(params, inputs, {name: value[0] for name, value in held.by_run.items()}, seen))
        while last:
            last.pop().remove()
        hooked = [(point, model.hook_dict[point]) for point in points if point != LOGITS]
        last.extend(module.register_forward_hook(partial(see, point)) for point, module in hooked)  # behind all others

    def see(point: str, module: Any, given: Any, activation: Tensor) -> None:
        seen[point] = activation

    def change(tensor: Tensor, *, hook: Any) -> Tensor | None:
        return at_work[hook.name](tensor)

    def finish(module: Any, given: Any, logits: Any) -> Tensor | None:
        return at_work[LOGITS](logits)

    model.embed.register_forward_pre_hook(begin)
    for point in points:
        if point == LOGITS:
            model.unembed.register_forward_hook(finish)
        else:
            model.hook_dict[point].add_perma_hook(change)
