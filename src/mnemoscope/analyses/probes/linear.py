"""One linear probe: logistic regression for classes, ridge regression for numbers, both of scikit-learn.

Inputs are standardised column by column. A column that varies by less than a millionth of the largest activation is
taken as constant, since standardising would turn its rounding errors into a signal. The penalty is fixed beforehand.
"""

import numpy as np
import torch
from jaxtyping import Float, Shaped
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import r2_score, recall_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from mnemoscope.core.errors import in_range

RESOLUTION = 1e-6
"""Share of the largest activation below which a deviation is a rounding error."""
PENALTY = 1.0
"""Default weight of the squared norm of the coefficients; scikit-learn's own (`C = 1`, `alpha = 1`)."""
_ITERATIONS = 2000


def fitted(x: Float[np.ndarray, "row width"], y: Shaped[np.ndarray, " row"], penalty: float = PENALTY) -> Pipeline:
    """A probe fitted to rows; floating `y` are numbers, others classes.

    With z the standardised inputs it minimises the sum over rows of the loss plus a penalty on the coefficients w:
    -log p(y | z) + penalty / 2 |w|^2 for classes, (y - w.z - b)^2 + penalty |w|^2 for numbers.

    Raises:
        InputError: The penalty is not above zero.
    """
    in_range("penalty", penalty, 1e-12, float("inf"))
    scaler = StandardScaler().fit(x)
    scaler.scale_ = np.where(x.std(0) > RESOLUTION * np.abs(x).max(), np.asarray(scaler.scale_), np.inf)
    model = Ridge(alpha=penalty) if is_number(y) else LogisticRegression(C=1 / penalty, max_iter=_ITERATIONS)
    return make_pipeline(scaler, model.fit(scaler.transform(x), y))


def is_number(y: Shaped[np.ndarray, "..."]) -> bool:
    """Whether values are numbers and not classes."""
    return np.issubdtype(y.dtype, np.floating)


def scores(
    probe: Pipeline,
    x: Float[np.ndarray, "row width"],
    y: Shaped[np.ndarray, " row"],
    fit_y: Shaped[np.ndarray, " fit_row"],
) -> dict[str, float]:
    """How well a probe reads rows that it was not fitted on.

    Returns:
        For classes `accuracy`; `chance`, the accuracy of the class most frequent in `fit_y`; `balanced_accuracy`, the
        mean of the accuracies of each class; `information` in bits, the mean of log2 p(y | x) / p(y) with p(y) the
        frequency in `fit_y`, NaN where a class of `y` is not among these. For numbers `r2`.
    """
    if is_number(y):
        return {"r2": float(r2_score(y, probe.predict(x)))}
    guess = probe.predict(x)
    classes, counts = np.unique(fit_y, return_counts=True)
    return {
        "accuracy": float((guess == y).mean()),
        "chance": float((y == classes[counts.argmax()]).mean()),
        "balanced_accuracy": float(recall_score(y, guess, labels=np.unique(y), average="macro")),
        "information": _information(probe.predict_log_proba(x), y, classes, counts / counts.sum()),
    }


def _information(
    log_probs: Float[np.ndarray, "row class"],
    y: Shaped[np.ndarray, " row"],
    classes: Shaped[np.ndarray, " class"],
    frequencies: Float[np.ndarray, " class"],
) -> float:
    if not np.isin(y, classes).all():
        return float("nan")
    place = np.searchsorted(classes, y)
    gained = log_probs[np.arange(len(y)), place] - np.log(frequencies[place])
    return float(gained.mean() / np.log(2))


def directions(probe: Pipeline) -> Float[Tensor, "direction width"]:
    """The coefficients of a probe on the activations themselves, a row a class (one for two classes, or a number)."""
    scaler, model = (step for _, step in probe.steps)
    return torch.from_numpy(np.atleast_2d(model.coef_) / scaler.scale_)
