"""Recovery from a lesion: training goes on without a part, beside the run that was left alone.

A lesion is a clamp that starts at a later step (`core.clamp`). Until then both runs have the same bits, so what differs
afterwards is due to the lesion. The lesioned model is looked at with the part removed.

A skill has recovered at the first checkpoint from which the lesioned model stays within a margin of the run left alone
at the same step. A run that does not within its length is censored: it recovers later, or never. `unhurt` is one that
was never below the margin.

*Does not show* that the head that now comes first was recruited: it may have done the same before, beside the removed
one. `rank_before` says which place it had in the run left alone when the lesion was made. Time is known no better than
between two checkpoints.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import torch
import xarray as xr

from mnemoscope.analyses.clamped import with_clamps
from mnemoscope.analyses.onsets import threshold_onset
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.protocols import HookedModel
from mnemoscope.models.run import Run

_STATUS = {"reached": "recovered", "from the start": "unhurt", "never": "never", "undefined": "undefined"}


def time_to_recover(
    lesioned: xr.DataArray, alone: xr.DataArray, *, lesion: int, margin: float = 0.05, falls: bool = False
) -> xr.Dataset:
    """Steps from a lesion until a measure is back at the level of the run that was left alone.

    Args:
        lesioned: The measure over `step` and any other dimensions, such as seed.
        alone: The same of the run that was left alone, at the same steps.
        lesion: First update that was made with the lesion.
        margin: The largest shortfall that counts as none.
        falls: True for a measure that is good where it is small, such as a loss.

    Returns:
        Over the other dimensions: `steps` (0 where it was unhurt, NaN where it did not recover), `status`: `recovered`,
        `unhurt`, `never` (until `observed`, steps after the lesion) or `undefined`, and `largest`, the worst shortfall.
        Over `step` too: `shortfall`.

    Raises:
        InputError: The steps differ, or none comes after the lesion.

    >>> alone = xr.DataArray([0.9, 0.9, 0.9, 0.9], coords={"step": [0, 100, 200, 300]})
    >>> lesioned = xr.DataArray([0.9, 0.2, 0.5, 0.88], coords={"step": [0, 100, 200, 300]})
    >>> ms.analyses.time_to_recover(lesioned, alone, lesion=100).steps.item()
    200.0
    """
    in_range("margin", margin, 0, float("inf"))
    if "step" not in lesioned.dims or "step" not in alone.dims or not lesioned.step.equals(alone.step):
        raise InputError("lesioned and alone must be over the same steps; take the checkpoints that both have")
    shortfall = (lesioned - alone) if falls else (alone - lesioned)
    after = shortfall.sel(step=shortfall.step >= lesion)
    if after.sizes["step"] < 2:
        raise InputError(f"two steps or more must come from the lesion on, {lesion}; got {after.sizes['step']}")
    found = threshold_onset(after, margin, direction="fall")
    steps = xr.where(found.status == "from the start", 0.0, found.by - lesion)
    status = xr.apply_ufunc(_STATUS.__getitem__, found.status, vectorize=True)
    return xr.Dataset(
        {"steps": steps, "status": status, "largest": after.max("step"), "shortfall": shortfall},
        attrs={
            "lesion": lesion,
            "margin": margin,
            "observed": int(shortfall.step[-1]) - lesion,
            "unit": "steps of training after the lesion",
            "definition": f"first checkpoint from which the shortfall is at most {margin:g}, for all that follow",
        },
    )


@check_arguments
@torch.no_grad()
def recovery(
    lesioned: Sequence[Run],
    alone: Sequence[Run],
    *,
    measure: Callable[[HookedModel], float],
    select: Callable[[HookedModel], Iterable[str]] | None = None,
    margin: float = 0.05,
    falls: bool = False,
) -> xr.Dataset:
    """Lesioned runs against runs that were left alone, seed by seed: time to recover, and which head took the role.

    Args:
        lesioned: Runs with more clamps than those left alone; the lesion is at the first step of these clamps.
        alone: Runs of the same seeds and configuration otherwise.
        measure: A number for a model, such as its accuracy on a skill. Lesioned models come with the part removed.
        select: The heads of a model, from the one that has a role most clearly to the least; `choose_roles` gives them
            in that order. None: no roles.
        margin: As for `time_to_recover`.
        falls: As for `time_to_recover`.

    Returns:
        As `time_to_recover` along `seed`, and `value` over (`run`, `seed`, `step`) at the checkpoints that all runs
        have. With `select` also `first_head`, over the same; `before`, that of the run left alone at the last
        checkpoint up to the lesion; `after`, that of the lesioned model at the end; and `rank_before`, the place, from
        1, that `after` had where `before` was first.

    Raises:
        InputError: The runs do not belong together, or have no lesion between them.

    >>> clamp = ms.core.Clamp(place="L0H0", value="zero", start=2)
    >>> short = {"recipe.n_steps": 4, "recipe.warmup_steps": 1}
    >>> left = ms.train(ms.preset("v3", changes=short), Path("runs/left"))
    >>> hurt = ms.train(ms.preset("v3", changes={**short, "recipe.clamps": (clamp,)}), Path("runs/hurt"))
    >>> loss = lambda model: task.loss(model(batch.inputs), batch).item()
    >>> ms.analyses.recovery([hurt], [left], measure=loss, falls=True).attrs["lesion"]
    2
    """
    lesion = _lesion(lesioned, alone)
    steps = sorted(set.intersection(*(set(run.steps) for run in (*lesioned, *alone))))
    seeds = [run.spec.seed for run in lesioned]
    looked = {"lesioned": [with_clamps(run) for run in lesioned]}
    looked["alone"] = [with_clamps(run) if run.spec.recipe.clamps else run for run in alone]
    values: dict[str, list[list[float]]] = {}
    orders: dict[str, list[list[list[str]]]] = {}
    for name, runs in looked.items():
        values[name] = [[float(measure(run.hooked(step))) for step in steps] for run in runs]
        if select is not None:
            orders[name] = [[[*select(run.hooked(step))] for step in steps] for run in runs]
    dims, coords = ("run", "seed", "step"), {"run": [*looked], "seed": seeds, "step": steps}
    value = xr.DataArray([*values.values()], dims=dims, coords=coords)
    hurt, left = (value.sel(run=name, drop=True) for name in looked)
    found = time_to_recover(hurt, left, lesion=lesion, margin=margin, falls=falls).assign(value=value)
    if select is None:
        return found
    at = max(place for place, step in enumerate(steps) if step <= lesion)
    firsts = [[[order[0] for order in of_seed] for of_seed in of_run] for of_run in orders.values()]
    after = [of_seed[-1][0] for of_seed in orders["lesioned"]]
    then = [of_seed[at] for of_seed in orders["alone"]]
    return found.assign(
        first_head=(dims, firsts),
        before=("seed", [order[0] for order in then]),
        after=("seed", after),
        rank_before=("seed", [order.index(head) + 1 for order, head in zip(then, after, strict=True)]),
    )


def _lesion(lesioned: Sequence[Run], alone: Sequence[Run]) -> int:
    """The step of the lesion; refuses runs that do not belong together."""
    if not lesioned or [run.spec.seed for run in lesioned] != [run.spec.seed for run in alone]:
        raise InputError("lesioned and alone must be runs of the same seeds in the same order, at least one of each")
    starts = set()
    for hurt, left in zip(lesioned, alone, strict=True):
        (task, model, recipe), other = hurt.spec.configuration, left.spec.configuration
        more = [clamp for clamp in recipe.clamps if clamp not in left.spec.recipe.clamps]
        if (task, model, replace(recipe, clamps=left.spec.recipe.clamps)) != other or not more:
            raise InputError(f"{hurt.path} and {left.path} must differ in clamps that the first has more; they do not")
        starts.add(min(clamp.start for clamp in more))
    if len(starts) > 1:
        raise InputError(f"all lesions must begin at one step; they begin at {', '.join(map(str, sorted(starts)))}")
    return starts.pop()
