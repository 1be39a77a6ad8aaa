"""T10: when recall appears, and how abruptly.

Under another recipe an epoch means something else, so that the recipe is no factor.
"""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import xarray as xr
from jaxtyping import Float

from mnemoscope import CLAIMS, Gate, Subject
from mnemoscope.analyses import lowest_skill_accuracy, threshold_onset
from mnemoscope.claims import GATE, Case, case, controls, most
from mnemoscope.models.constructed import predict_exactly
from mnemoscope.systems.tiny_recall.claim_parts import TEXTS, UNTRAINED, V3, tiny_recall

EPOCH = 391
"""Steps."""
PUBLISHED_ONSET = 9.5
LOW, HALF, HIGH = 0.4, 0.5, 0.9


def measure(subject: Subject) -> dict[str, float]:
    """The epoch at which recall appears (`onset`), its distance from the published one (`onset_distance`), and `width`.

    NaN where nothing was logged, or accuracy does not get there.
    """
    onset, width = (math.nan, math.nan) if subject.progress is None else _times(subject.progress.test_recall)
    return {
        "onset": onset,
        "width": width,
        "onset_distance": abs(onset - PUBLISHED_ONSET),
        GATE: lowest_skill_accuracy(subject, ["recall"]),
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


def _training(name: str, *, onset: float, width: float) -> Case:
    """A control: a model that recalls, and a log; recall is at .5 at `onset` and takes `width` from .4 to .9, in
    epochs.
    """
    return case(name, partial(_trained, onset=onset, width=width))


def _trained(number: int, *, onset: float, width: float) -> dict[str, Subject]:
    steps = np.arange(0, 50 * EPOCH + 1, EPOCH // 4)
    epochs = steps / EPOCH - 0.05 * number
    recall = np.clip(HALF + (HIGH - LOW) * (epochs - onset) / width, 0.2, 1.0)
    progress = xr.Dataset({"test_recall": ("step", recall)}, coords={"step": steps})
    return {name: replace(of, progress=progress) for name, of in predict_exactly(V3, "bayes")(number).items()}


_abrupt = _training("abrupt near epoch 9.5", onset=PUBLISHED_ONSET, width=0.2)
_late = _training("abrupt at epoch 20", onset=20.0, width=0.2)
_gradual = _training("gradual over 8 epochs", onset=PUBLISHED_ONSET, width=8.0)
_T10 = tiny_recall(
    id="T10",
    statement="Recall appears abruptly, near epoch 9 or 10.",
    source="tiny-recall, presentation, loss curve of the second model",
    parts=(most("onset_distance", "below", 1.5, "epochs"), most("width", "below", 1.0, "epochs")),
    units=V3,
    measure=measure,
    explanation=TEXTS.explain("T10", epoch=EPOCH, published_onset=PUBLISHED_ONSET, low=LOW, high=HIGH, half=HALF),
    gate=Gate(statement="answers recall in 99 % of unseen sequences or more", at_least=0.99),
    n_replicates=32,
    develops=False,
    factors={"model.normalization": ("none",)},
    controls=controls(positive=(_abrupt,), negative=(_late, _gradual, UNTRAINED)),
)
T10 = _T10.against(
    _T10.rival(
        "elsewhen",
        "Recall appears abruptly, at whatever time.",
        source="against tiny-recall: the time depends on the seed",
        parts=(most("width", "below", 1.0, "epochs"),),
        controls=controls(positive=(_late,), negative=(_gradual,)),
    ),
    _T10.rival(
        "gradual",
        "Recall appears over more than two epochs.",
        source="against tiny-recall",
        parts=(most("width", "above", 2.0, "epochs"),),
        controls=controls(positive=(_gradual,), negative=(_abrupt,)),
    ),
)
CLAIMS.add(T10.id, T10)
