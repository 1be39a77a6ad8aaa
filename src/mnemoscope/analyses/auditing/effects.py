"""Effects by prompt, as analyses measure them, and the clusters of prompts that count as one observation.

Prompts that share a template or a subject are not independent. A cluster enters with the mean of its prompts, and every
cluster counts alike, so that a template with many prompts has no more say than one with few.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int

from mnemoscope.analyses.ablation import BY_PROMPT
from mnemoscope.analyses.patching import moved
from mnemoscope.core.errors import InputError, one_of

CLUSTER = "cluster"
"""Coordinate along `prompt` that numbers the clusters of a result."""
_FALLS = ("accuracy", "log_prob")
_LOSS = "loss"


@dataclass(frozen=True, kw_only=True, eq=False)
class Readings:
    """Predictions of probes and the labels that they are to give, of classes or of numbers."""

    prediction: Float[np.ndarray, "cell prompt"]
    label: Float[np.ndarray, "cell prompt"]
    numbers: bool

    def select(self, part: Bool[np.ndarray, " prompt"]) -> "Readings":
        """The readings of some prompts."""
        return replace(self, prediction=self.prediction[:, part], label=self.label[:, part])

    def scores(
        self, prediction: Float[np.ndarray, "*shape"], label: Float[np.ndarray, "*shape"]
    ) -> Float[np.ndarray, "*shape"]:
        """1 for the right class and 0 for another; of numbers minus the squared error."""
        return _score(prediction, label, numbers=self.numbers)


def _score(prediction: Any, label: Any, *, numbers: bool) -> Any:
    """The score of readings, arrays with labels or without."""
    return -((prediction - label) ** 2) if numbers else 1.0 * (prediction == label)


def probe_scores_by_prompt(result: xr.Dataset | xr.DataArray) -> xr.DataArray | None:
    """The score of every reading of probes, NaN where a prompt is not read; None where the result is of no probes."""
    if not isinstance(result, xr.Dataset) or "prediction" not in result:
        return None
    right = _score(result.prediction, result.label, numbers="r2" in result)
    return right.where(result.prediction.notnull()).transpose(..., "prompt").rename("score")


def probe_readings(result: xr.Dataset, cluster: Int[np.ndarray, " prompt"]) -> Readings:
    """The readings of probes, and the labels; InputError where the prompts of a cluster differ in their label."""
    n = result.sizes["prompt"]
    both = [each.transpose(..., "prompt").values for each in xr.broadcast(result.prediction, result.label)]
    prediction, label = (each.reshape(-1, n) for each in both)
    first = label[:, np.unique(cluster, return_index=True)[1]][:, cluster]
    if not np.array_equal(first, label, equal_nan=True):
        raise InputError(
            "labels are dealt to clusters, and the prompts of some cluster differ in their label; give other clusters, "
            "or compare with another model (against=, --audit-null untrained)"
        )
    return Readings(prediction=prediction, label=label, numbers="r2" in result)


def prompt_effects(result: xr.Dataset | xr.DataArray, measure: str | None = None) -> xr.DataArray:
    """Effects with `prompt` as the last dimension: what a patch or a removal costs, or what a head attends beyond even.

    A patch: clean minus patched under noising, patched minus corrupted under denoising, in the metric's unit. A
    removal: the accuracy or log-probability (`measure`) that is lost, or the rise of the loss. A score of a head: what
    it is above that of even attention. An array along `prompt` is taken as it is. Raises InputError where no prompts
    are kept.
    """
    if isinstance(result, xr.DataArray):
        found = {"effect": result}
    elif "value" in result and "clean" in result:
        found = {"value": moved(result)}
    elif f"score{BY_PROMPT}" in result:
        found = {"score": result[f"score{BY_PROMPT}"] - result[f"even{BY_PROMPT}"]}
    else:
        kept = [name for name in (*_FALLS, _LOSS) if f"{name}{BY_PROMPT}" in result]
        lost = {name: result[f"clean_{name}{BY_PROMPT}"] - result[f"{name}{BY_PROMPT}"] for name in kept}
        found = {name: -change if name == _LOSS else change for name, change in lost.items()}
    found = {name: effects for name, effects in found.items() if "prompt" in effects.dims}
    if not found:
        raise InputError(
            f"an audit needs the effect on every prompt, and the result has dimensions {_dims(result)}; take that of "
            "ms.patch, ms.patch_edges or an estimate before means are taken, or measure with per_prompt=True"
        )
    chosen = next(iter(found)) if measure is None else measure
    one_of("measure", chosen, found)
    return found[chosen].transpose(..., "prompt").rename(chosen)


def _dims(result: xr.Dataset | xr.DataArray) -> str:
    return ", ".join(map(str, result.dims)) or "none"


def prompt_clusters(
    result: xr.Dataset | xr.DataArray, clusters: str | Iterable[Any] | None
) -> Int[np.ndarray, " prompt"]:
    """The number of the cluster of every prompt, from 0: by labels, by a coordinate's name, or as the result has them.

    Without a coordinate `cluster` every prompt is one of its own.
    """
    n = result.sizes["prompt"]
    if clusters is None:
        labels = result[CLUSTER].values if CLUSTER in result.coords else np.arange(n)
    elif isinstance(clusters, str):
        one_of("clusters", clusters, [str(name) for name, each in result.coords.items() if each.dims == ("prompt",)])
        labels = result[clusters].values
    else:
        labels = np.asarray(clusters)
    if labels.shape != (n,):
        raise InputError(f"clusters must give one label for each of {n} prompts; got an array of shape {labels.shape}")
    return np.unique(labels, return_inverse=True)[1]


def cluster_means(
    values: Float[np.ndarray, "cell prompt"], cluster: Int[np.ndarray, " prompt"]
) -> Float[np.ndarray, "cell cluster"]:
    """The mean of every cluster over its prompts, those that are NaN left out; NaN where there are none."""
    member = (cluster[:, None] == np.unique(cluster)).astype(float)
    there = np.isfinite(values)
    count = there @ member
    return np.divide(np.where(there, values, 0) @ member, count, out=np.full(count.shape, np.nan), where=count > 0)
