"""The truth about the circuits of a small model: every set of edges is measured.

Of E edges there are 2^E circuits; those with the same pruned form are the same circuit and are run once (of the 8192
of one layer with two heads and an MLP, 1936 differ). A circuit is *minimal* if its faithfulness reaches the target and
that of none of its subsets does. Because faithfulness is not monotone, it does not do to look at the subsets with one
edge fewer: whether some subset reaches the target is handed up from every set to those with one edge more. The
*frontier* is the highest faithfulness of any circuit with a number of edges.

It shows what searches could find on these prompts. Several minimal circuits are several ways to the same answer; which
of them the model uses is not a question of faithfulness. A circuit whose faithfulness lies above 1 counts as faithful
here: it leaves out what works against the answer. With KL none does.

`compared_with_exact` says how far circuits that a search found are from this. `size_ratio`: edges by those of the
smallest circuit that reaches the target. `jaccard`: shared edges by edges of either, with the minimal circuit for which
that is highest. `gap`: the highest faithfulness of any circuit of that size minus its own.

That shows how good a search is on this model and these prompts. It does not show that the same search is as good where
the truth cannot be had.
"""

import numpy as np
import xarray as xr
from jaxtyping import Bool

from mnemoscope.analyses.discovery.setting import ROUNDING, TARGET, Setting, along
from mnemoscope.core.edge import coordinates
from mnemoscope.core.errors import InputError, in_range

MAX_EDGES = 16


def exact(setting: Setting, *, target: float = TARGET) -> xr.Dataset:
    """Every circuit of a small model.

    Args:
        setting: What circuits are measured on; at most 16 edges.
        target: Faithfulness to be reached.

    Returns:
        `faithfulness` over `number`: of the circuit that has edge e if bit e of its number is set; `minimal` over
        (alternative, edge): the minimal circuits, the smallest first; `frontier` and `best` over n_edges: the highest
        faithfulness, and (with edge) a circuit that has it.

    Raises:
        InputError: There are too many edges, or the target is out of range; or as `Setting.span`.
    """
    in_range("target", target, 0, 1)
    n_edges = len(setting.edges)
    if n_edges > MAX_EDGES:
        raise InputError(
            f"exact runs every set of edges of models with at most {MAX_EDGES} edges; this one has {n_edges}, and so "
            "2 to that power circuits; take embeddings together, a smaller model, or `greedy` or `top_n`"
        )
    masks = (np.arange(2**n_edges)[:, None] >> np.arange(n_edges)) % 2 == 1
    found, size = setting.faithfulness(masks), masks.sum(1)
    small = np.flatnonzero(minimal(found >= target - ROUNDING))
    small = small[np.lexsort((-found[small], size[small]))]
    best = np.array([np.where(size == n, found, -np.inf).argmax() for n in range(n_edges + 1)])
    return xr.Dataset(
        {
            "faithfulness": ("number", found),
            "minimal": (("alternative", "edge"), masks[small]),
            "frontier": ("n_edges", found[best]),
            "best": (("n_edges", "edge"), masks[best]),
        },
        coords={
            **coordinates(setting.edges),
            "number": range(len(masks)),
            "alternative": range(len(small)),
            "size": ("alternative", size[small]),
            "n_edges": range(n_edges + 1),
        },
        attrs={**setting.attrs, "method": "every set of edges", "target": target},
    )


def minimal(reached: Bool[np.ndarray, " circuit"]) -> Bool[np.ndarray, " circuit"]:
    """Which sets reach a target while none of their subsets does.

    Args:
        reached: Of the set that has element e if bit e of its number is set.
    """
    below = reached.copy()
    n_elements = len(reached).bit_length() - 1
    for element in range(n_elements):
        half = below.reshape(-1, 2, 2**element)
        half[:, 1] |= half[:, 0]
    smaller = np.zeros_like(reached)
    for element in range(n_elements):
        smaller.reshape(-1, 2, 2**element)[:, 1] |= below.reshape(-1, 2, 2**element)[:, 0]
    return reached & ~smaller


def compared_with_exact(truth: xr.Dataset, circuits: xr.DataArray) -> xr.Dataset:
    """Circuits beside the truth.

    Args:
        truth: From `exact`.
        circuits: Of the same model: truth values over edge, after any other axes, which the result keeps.

    Returns:
        `n_edges`, `faithfulness`, `size_ratio`, `jaccard`, `gap` over the axes of `circuits` but edge.

    Raises:
        InputError: The circuits are of another model, or no circuit reaches the target.
    """
    if not truth.sizes["alternative"]:
        raise InputError("no circuit reaches the target of truth, so that nothing can be compared with it")
    circuits = along(truth["edge"].values, circuits).astype(bool)
    places = xr.DataArray(1 << np.arange(circuits.sizes["edge"]), dims="edge")
    size, number = circuits.sum("edge"), (circuits * places).sum("edge")
    both = (circuits & truth.minimal).sum("edge")
    found = truth.faithfulness.sel(number=number).drop_vars("number")
    return xr.Dataset(
        {
            "n_edges": size,
            "faithfulness": found,
            "size_ratio": size / int(truth["size"].min()),
            "jaccard": (both / (size + truth["size"] - both)).max("alternative"),
            "gap": truth.frontier.sel(n_edges=size).drop_vars("n_edges") - found,
        },
        attrs=truth.attrs,
    )
