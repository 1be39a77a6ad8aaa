"""The course of training: the nearest predictor at every checkpoint, phases, and when the parts of the circuit come.

A *phase* is a run of checkpoints with the same nearest predictor (`distances`). Onsets are the first kept steps from
which a measure stays past a threshold; what never comes counts as one step after the last one kept.

*Does not show* what happened between two checkpoints.
"""

import math
from collections.abc import Sequence
from itertools import groupby

import torch
import xarray as xr

from mnemoscope import HookedModel, InputError, Task
from mnemoscope.analyses import ThresholdDirection, threshold_onset
from mnemoscope.core import one_of
from mnemoscope.systems.markov.analyses.attention import attention_shares, with_ideal_patterns
from mnemoscope.systems.markov.analyses.distances import chains_of, divergences, own_n_gram, prompts

N_TRACKED = 64
"""Sequences: there are many checkpoints."""


@torch.no_grad()
def trajectory(model: HookedModel, task: Task, *, seed: int, n: int = N_TRACKED) -> xr.Dataset:
    """All measures of one checkpoint: scalars on sequences of the seed's stream `markov prompts`.

    `kl_*` are divergences from predictors, `closed` the share of the gap. Models of two layers or more also have
    `previous`, `successors` and, where the last symbol decides, `closed_previous` and `closed_successors` with ideal
    patterns. Of finitely many chains `known_kl_*` are divergences on those, and all others are on new chains. Raises
    InputError for another task.
    """
    task = chains_of(task)
    batch = prompts(task, seed, n)
    found = divergences(model, task, batch)
    values = {f"kl_{name}": float(found.kl.sel(predictor=name)) for name in found.predictor.values}
    values |= {"closed": float(found.closed), "gap": float(found.gap)}
    if model.cfg.n_layers > 1:
        shares = attention_shares(model, batch)
        values |= {name: float(shares[name].max()) for name in ("previous", "successors")}
        if task.order == 1:
            ideal = with_ideal_patterns(model, task, batch)
            values |= {f"closed_{name}": float(ideal.sel(ideal=name)) for name in ideal.ideal.values}
    if task.n_chains is not None:
        known = divergences(model, task, prompts(task, seed, n, split="train")).kl
        values |= {f"known_kl_{name}": float(known.sel(predictor=name)) for name in known.predictor.values}
    attrs = {"unit": "kl, gap: nats; the rest: share", "n_sequences": n, "weights": "unprocessed"}
    return xr.Dataset(values, attrs=attrs)


def tracked(found: xr.Dataset | None, *names: str) -> xr.Dataset:
    """Measures of a trajectory; raises InputError where there is none, or it lacks one."""
    if found is None:
        raise InputError("there is no trajectory of this run; track it first: mnemoscope evaluate --checkpoints RUN")
    for name in names:
        one_of("a measure of the trajectory", name, [str(known) for known in found.data_vars])
    return found[list(names)]


def nearest(found: xr.Dataset | None, predictors: Sequence[str], *, prefix: str = "kl_") -> list[str]:
    """The nearest of some predictors at every kept step."""
    measures = tracked(found, *(f"{prefix}{name}" for name in predictors)).to_array()
    return [predictors[int(place)] for place in measures.argmin("variable").values]


def phases(found: xr.Dataset, predictors: Sequence[str]) -> list[tuple[str, int, int]]:
    """The nearest predictor, and the first and the last kept step, of every phase in turn."""
    steps = found.step.values.tolist()
    named = list(zip(nearest(found, predictors), steps, strict=True))
    runs = [(name, [step for _, step in group]) for name, group in groupby(named, key=lambda pair: pair[0])]
    return [(name, run[0], run[-1]) for name, run in runs]


def onset(found: xr.Dataset | None, name: str, threshold: float, *, direction: ThresholdDirection = "rise") -> float:
    """The step from which a measure stays past a threshold, straight between checkpoints; never: the last step + 1."""
    values = tracked(found, name)[name]
    crossed = float(threshold_onset(values, threshold, direction=direction).onset)
    return float(values.step[-1]) + 1 if math.isnan(crossed) else crossed


def in_order(names: Sequence[str], order: Sequence[str]) -> bool:
    """True if the phases are those of `order`, each once, in turn."""
    return [name for name, _ in groupby(names)] == list(order)


def simpler_first(task: Task) -> tuple[str, ...]:
    """The predictors that training is expected to pass, from the simplest on."""
    every = ("uniform", "unigram", "bigram", "trigram")
    return every[: every.index(own_n_gram(chains_of(task))) + 1]


def halfway(found: xr.Dataset | None, name: str, *, before: float) -> float:
    """The step at which a measure is midway between its mean up to step `before` / 2 and its end."""
    values = tracked(found, name)[name]
    start = float(values.sel(step=slice(None, before / 2)).mean())
    end = float(values[-1])
    direction: ThresholdDirection = "rise" if end >= start else "fall"
    return onset(found, name, (start + end) / 2, direction=direction)
