"""T10: when recall appears, and how abruptly.

"Recall appears abruptly, near epoch 9 or 10", is refuted if it does so 1.5 epochs or more from epoch 9.5, or takes an
epoch or more. Rivals: it is as abrupt, at whatever time; it is gradual and takes more than two epochs.

Read from the accuracy of recall on monitoring sequences over unseen mappings, as training logged it, in epochs of 391
steps (100,000 samples in batches of 256).

- `onset`: the first line of the log from which accuracy stays at .5 or above.
- `width`: from the last line at .4 or below to the first one after it at .9 or above; a log that is never at .4 or
  below counts from its first line. No width is smaller than the interval between two lines, a quarter of an epoch as
  published.

It shows when answers become right, not when what makes them right was formed: accuracy can jump where log-probability
drifts. Under another recipe an epoch means something else, so that is no factor.
"""

import math
from functools import partial

import numpy as np
import xarray as xr
from jaxtyping import Float

from mnemoscope import CLAIMS, Claim, Configuration, Control, Criterion, Gate, Subject
from mnemoscope.analyses import learned, threshold_onset
from mnemoscope.judging import GATE
from mnemoscope.models import untrained
from mnemoscope.models.constructed import predicting
from mnemoscope.systems.tiny_recall.controls import negative

EPOCH = 391
"""Steps."""
PUBLISHED_ONSET = 9.5
LOW, HALF, HIGH = 0.4, 0.5, 0.9
UNITS = {"v3": Configuration(preset="v3", recipe="published")}


def measure(subject: Subject) -> dict[str, float]:
    """When recall appears, in epochs: `onset`, its distance from the published one (`onset_distance`), and `width`; NaN
    where nothing was logged, or accuracy does not get there.
    """
    onset, width = (math.nan, math.nan) if subject.progress is None else _times(subject.progress.test_recall)
    return {
        "onset": onset,
        "width": width,
        "onset_distance": abs(onset - PUBLISHED_ONSET),
        GATE: learned(subject, ["recall"]),
    }


def _times(recall: xr.DataArray) -> tuple[float, float]:
    """Onset and width in epochs."""
    epochs = recall.step.to_numpy() / EPOCH
    return float(threshold_onset(recall, HALF).by) / EPOCH, _width(epochs, recall.to_numpy())


def _width(epochs: Float[np.ndarray, " step"], recall: Float[np.ndarray, " step"]) -> float:
    below = np.flatnonzero(recall <= LOW)
    last = below[-1] if below.size else 0
    above = np.flatnonzero(recall[last:] >= HIGH)
    return float(epochs[last + above[0]] - epochs[last]) if above.size else math.nan


def _trajectory(case: int, *, onset: float, width: float) -> dict[str, Subject]:
    """A model that recalls, and a log: recall is at .5 at `onset` and takes `width` from .4 to .9, in epochs."""
    steps = np.arange(0, 50 * EPOCH + 1, EPOCH // 4)
    epochs = steps / EPOCH - 0.05 * case
    recall = np.clip(HALF + (HIGH - LOW) * (epochs - onset) / width, 0.2, 1.0)
    progress = xr.Dataset({"test_recall": ("step", recall)}, coords={"step": steps})
    planted = predicting(UNITS, "bayes")(case)["v3"]
    return {"v3": Subject(model=planted.model, task=planted.task, seed=planted.seed, progress=progress)}


_ABRUPT, _LATE, _GRADUAL = (
    partial(Control, name=name, plant=partial(_trajectory, onset=onset, width=width))
    for name, onset, width in (
        ("abrupt near epoch 9.5", PUBLISHED_ONSET, 0.2),
        ("abrupt at epoch 20", 20.0, 0.2),
        ("gradual over 8 epochs", PUBLISHED_ONSET, 8.0),
    )
)
_WIDTH = partial(Criterion, name="width", quantifier="most", unit="epochs")

_T10 = Claim(
    id="T10",
    system="tiny-recall",
    statement="Recall appears abruptly, near epoch 9 or 10.",
    source="tiny-recall, presentation, loss curve of the second model",
    parts=(
        Criterion(name="onset_distance", quantifier="most", margin=1.5, direction="below", unit="epochs"),
        _WIDTH(margin=1.0, direction="below"),
    ),
    units=UNITS,
    measure=measure,
    gate=Gate(statement="answers recall in 99 % of unseen sequences or more", at_least=0.99),
    n_replicates=32,
    develops=False,
    factors={"model.normalization": ("none",)},
    controls=(
        _ABRUPT(kind="positive"),
        _LATE(kind="negative"),
        _GRADUAL(kind="negative"),
        negative("untrained", untrained(UNITS)),
    ),
)
T10 = _T10.against(
    _T10.rival(
        "elsewhen",
        "Recall appears abruptly, at whatever time.",
        source="against tiny-recall: the time depends on the seed",
        parts=(_WIDTH(margin=1.0, direction="below"),),
        controls=(_LATE(kind="positive"), _GRADUAL(kind="negative")),
    ),
    _T10.rival(
        "gradual",
        "Recall appears over more than two epochs.",
        source="against tiny-recall",
        parts=(_WIDTH(margin=2.0),),
        controls=(_GRADUAL(kind="positive"), _ABRUPT(kind="negative")),
    ),
)
CLAIMS.add(T10.id, T10)
