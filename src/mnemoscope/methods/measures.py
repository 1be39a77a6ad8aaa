"""Measures of scores: against the edges of a known circuit, and by faithfulness where no truth is needed.

*AUROC*: the share of pairs of an edge inside and one outside of which the first has the higher score; ties count half.
*Precision at size*: the share of true edges among as many edges of the highest score as the circuit has, equal to
recall there; ties are broken by chance, in expectation. *Precision* and *recall* of a method's own choice.

MIB (Mueller et al. 2025) takes circuits of `SHARES` of all edges, those of the highest score, and their faithfulness f:

    CPR = area under f over the share of edges          CMD = area under |1 - f| over the share of edges

both by trapezoids from the smallest share to the whole model; f of 1 throughout has CPR .999 and CMD 0. CPR rewards f
above 1, where edges that work against the answer are left out; CMD punishes it. Scores are ranked *signed* (edges that
add most first, those that work against the answer last), the default of MIB's script, or *absolute*, by size.
`protocol_auroc` is the AUROC of MIB's InterpBench column as its benchmark computes it: circuits of `SHARES` grown from
the logits (`edge_order`, connected) by absolute scores, pruned to paths from the input, and trapezoids between these
ten points, from the first of them on.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float
from scipy.integrate import trapezoid
from sklearn.metrics import roc_auc_score

from mnemoscope.analyses.discovery.searches import edge_order
from mnemoscope.analyses.discovery.setting import Setting

SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Sizes of MIB's circuits, as shares of all edges."""


def auroc(scores: Float[np.ndarray, " edge"], truth: Bool[np.ndarray, " edge"]) -> float:
    """Area under the curve of true over false positives; NaN where all edges are in the circuit."""
    return float(roc_auc_score(truth, scores)) if not truth.all() else np.nan


def precision_at_size(scores: Float[np.ndarray, " edge"], truth: Bool[np.ndarray, " edge"]) -> float:
    """The expected share of true edges among as many of the highest score as there are true ones; NaN for none."""
    if not (n := int(truth.sum())):
        return np.nan
    bound = np.sort(scores)[-n]
    above, tied = scores > bound, scores == bound
    return float(truth[above].sum() + (n - above.sum()) * truth[tied].mean()) / n


def precision_and_recall(chosen: Bool[np.ndarray, " edge"], truth: Bool[np.ndarray, " edge"]) -> tuple[float, float]:
    """Precision and recall of a circuit; the precision of an empty one is NaN, and so is recall of nothing."""
    hits = float((chosen & truth).sum())
    return hits / chosen.sum() if chosen.any() else np.nan, hits / truth.sum() if truth.any() else np.nan


def areas(shares: Sequence[float], faithfulness: Sequence[float] | Float[np.ndarray, " size"]) -> tuple[float, float]:
    """CPR and CMD of faithfulness at ascending shares of edges.

    >>> ms.methods.areas((0, 0.5, 1), [0, 1, 1])
    (0.75, 0.25)
    """
    found = np.asarray(faithfulness, dtype=float)
    return float(trapezoid(found, shares)), float(trapezoid(abs(1 - found), shares))


def nested_circuits(
    setting: Setting, scores: Float[np.ndarray, " edge"], *, signed: bool
) -> Bool[np.ndarray, "size edge"]:
    """The circuits of `SHARES` of the edges, rounded down as MIB does."""
    order = edge_order(setting.paths, scores, signed=signed, connected=False)
    return np.argsort(order) < np.array([int(share * len(order)) for share in SHARES])[:, None]


def protocol_auroc(
    setting: Setting,
    scores: Float[np.ndarray, " edge"],
    truth: Bool[np.ndarray, " edge"],
    judged: Bool[np.ndarray, " edge"] | None = None,
) -> float:
    """The AUROC of MIB's protocol, of scores by size; NaN where no false edge ever comes in.

    Edges that are not `judged` are grown like others, and do not count. None: all are.
    """
    outside = ~truth if judged is None else ~truth & judged
    grown = edge_order(setting.paths, scores, signed=False, connected=True)
    rank = np.full(len(scores), len(scores))
    rank[grown] = np.arange(len(grown))
    sizes = np.ceil(np.array(SHARES) * len(scores))
    circuits = setting.paths.prune(rank < sizes[:, None], from_embeddings=True)
    if not outside.any():
        return np.nan
    true, false = (circuits[:, side].mean(1) for side in (truth, outside))
    return float(trapezoid(true, false / false[-1])) if false[-1] > 0 else np.nan
