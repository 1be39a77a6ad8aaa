"""Searches for a circuit: greedy pruning, the edges of the highest score, and every set of edges of a small model.

*Greedy pruning*: edges are taken out one after the other, from the logits backwards, if little is lost. The edges are
visited once, those into the last reader first, and of a reader's those from the last writer first. With C what is left,
an edge e is taken out

- with a `threshold` if the metric of C without e is worse than that of C by less than it; with KL as metric this is
  the rule of ACDC, KL(C - e) - KL(C) < threshold (Conmy et al. 2023, "Towards automated circuit discovery for
  mechanistic interpretability"), which the original and auto-circuit's `acdc_prune_scores` apply in other orders;
- with a `target` if the faithfulness of C without e is still at least that.

The result is the pruned form of what is left. To be quick, several decisions are run at once on the guess that they all
turn out like the last one; what follows a wrong guess is run again. It does not show that the circuit is the smallest,
nor, with a threshold, how faithful it is: small losses add up.

*Top n*: the smallest number of edges of the highest score that is faithful enough. Edges are ranked by any attribution,
by size or with their sign, equal ones in the order of the readers. Circuits of 0, 1, 2, ... edges are all run, because
faithfulness need not rise with every edge. Syed et al. 2023, "Attribution patching outperforms automated circuit
discovery"; Hanna et al. 2024. Of a graph with more than `setting.LARGE` edges sizes are run that grow by about a fifth,
and between the first that is enough and the one before half-way sizes until two neighbours are found: the smallest
unless faithfulness falls in between. `connected` picks as EAP-IG's `apply_greedy` does: from the logits backwards,
always the highest score among the edges that lead to a part that is in the circuit already. Without it the choice is
that of `apply_topn`. It does not show that the circuit is the smallest: edges that do the same get similar scores and
come in together, and edges that only work together may get none.

*The truth about a small model*: every set of edges is measured; those with the same pruned form are run once (of the
8192 of one layer with two heads and an MLP, 1936 differ). A circuit is *minimal* if its faithfulness reaches the target
and that of none of its subsets does. Because faithfulness is not monotone, it does not do to look at the subsets with
one edge fewer: whether some subset reaches the target is handed up from every set to those with one edge more. The
*frontier* is the highest faithfulness of any circuit with a number of edges. Several minimal circuits are several ways
to the same answer; which of them the model uses is not a question of faithfulness. A circuit whose faithfulness lies
above 1 counts as faithful here: it leaves out what works against the answer.
"""

import heapq
from collections.abc import Callable

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int

from mnemoscope.analyses.discovery.setting import LARGE, ROUNDING, TARGET, EdgePaths, Part, Setting, align_to_edges
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.site import LOGITS, edge_coordinates

MAX_EDGES = 16
_WINDOW = (8, 64)
"""Decisions run at once: at least and at most."""

Accepts = Callable[[float, float], bool]
"""The rule by which the mean metric of the present circuit and that without an edge let the edge be taken out."""


def greedy(setting: Setting, *, threshold: float | None = None, target: float | None = None) -> xr.Dataset:
    """Prune a model to a circuit.

    Give one of `threshold`, above 0, by which an edge may worsen the metric in its unit, and `target`, the faithfulness
    to be kept. Raises InputError where not one of them is given or it is out of range, and as `Setting.span`.

    Returns:
        `circuit` over edge; `worse` over edge: by how much its removal made the metric worse when it was tried, 0
        where it could not matter any more; `faithfulness` and `n_edges` of the circuit.

    >>> setting = ms.analyses.Setting(model=model, pairs=pairs)
    >>> found = ms.analyses.greedy(setting, target=0.9)
    >>> found.n_edges.item() < len(setting.edges), found.faithfulness.item() >= 0.9
    (True, True)
    """
    sign = 1 if setting.metric.higher_is == "better" else -1
    setting.check_time(len(setting.edges), "greedy pruning", "rank edges by attribution and take the top n")
    kept, worse = _visit_edges(setting, _rule(setting, sign, threshold, target), sign)
    kept = setting.prune(kept)
    return xr.Dataset(
        {
            "circuit": ("edge", kept),
            "worse": ("edge", worse),
            "faithfulness": setting.faithfulness(kept[None])[0],
            "n_edges": int(kept.sum()),
        },
        coords=edge_coordinates(setting.edges),
        attrs={
            **setting.attrs,
            "method": "greedy pruning from the logits backwards",
            **({"threshold": threshold} if target is None else {"target": target}),
        },
    )


def _rule(setting: Setting, sign: int, threshold: float | None, target: float | None) -> Accepts:
    if (threshold is None) == (target is None):
        raise InputError(f"greedy needs one of threshold and target; got threshold {threshold} and target {target}")
    span = setting.span
    if threshold is not None:
        if not threshold > 0:
            raise InputError(f"threshold must be above 0, in the unit of the metric; got {threshold!r}")
        return lambda now, without: sign * (now - without) < threshold
    assert target is not None
    in_range("target", target, 0, 1)
    empty = float(setting.ends[1].mean())
    return lambda _, without: (without - empty) / span >= target - ROUNDING


def _visit_edges(
    setting: Setting, accepts: Accepts, sign: int
) -> tuple[Bool[np.ndarray, " edge"], Float[np.ndarray, " edge"]]:
    """The circuit left after every edge was visited, and by how much the metric was worse without each."""
    n_edges = len(setting.edges)
    kept, worse = np.ones(n_edges, dtype=bool), np.zeros(n_edges)
    queue, now = list(reversed(range(n_edges))), float(setting.ends[0].mean())
    guess, window = True, _WINDOW[0]
    while queue:
        ahead = queue[:window]
        left = kept[None].repeat(len(ahead), 0)  # at each step, if all edges before are taken out too, or none of them
        for step, edge in enumerate(ahead):
            left[slice(step, None) if guess else step, edge] = False
        means = setting.values(left).mean(1)
        for edge, without in zip(ahead, means.tolist(), strict=True):
            worse[edge] = sign * (now - without)
            taken = accepts(now, without)
            if taken:
                kept[edge], now = False, without
            queue.remove(edge)
            if taken != guess:
                guess, window = taken, _WINDOW[0]
                break
        else:
            window = min(2 * window, _WINDOW[1])
        kept = setting.prune(kept)
        queue = [edge for edge in queue if kept[edge]]
    return kept, worse


def top_n(
    setting: Setting,
    scores: xr.DataArray,
    *,
    target: float = TARGET,
    signed: bool = False,
    connected: bool = False,
) -> xr.Dataset:
    """The smallest number of edges of the highest score that reaches a faithfulness.

    `scores` are over edge. With `signed` they rank by themselves instead of by size: what an edge adds to the metric
    counts as positive. With `connected` edges have to lead to what is in the circuit already.

    Returns:
        `circuit` over edge, and its `n_edges`; `faithfulness`, its `error` and `n_pruned`, the edges that matter, over
        `taken`, the numbers of edges that were taken; `score` and `rank` (from 1) over edge.

    Raises:
        InputError: Scores are not one per edge of the model, or NaN; the target is out of range; or as `Setting.span`.

    >>> setting = ms.analyses.Setting(model=model, pairs=pairs)
    >>> scores = ms.analyses.effects(ms.patch_edges(model, pairs)).ratio.sel(metric="logit_diff", direction="noising")
    >>> found = ms.analyses.top_n(setting, scores, target=0.5)
    >>> bool(found.faithfulness.max() >= 0.5)
    True
    """
    in_range("target", target, 0, 1)
    strength = align_to_edges(setting.edges, scores).to_numpy()
    ranked = edge_order(setting.paths, strength, signed=signed, connected=connected)
    rank = np.empty(len(ranked), dtype=int)
    rank[ranked] = np.arange(1, len(ranked) + 1)
    tried = _values_by_size(setting, rank, target)
    found = setting.share(values := np.stack(list(tried.values())))
    enough = found >= target - ROUNDING
    taken = np.array(list(tried))
    masks = rank <= taken[:, None]
    kept = setting.prune(masks)
    chosen = kept[enough.argmax()] if enough.any() else np.zeros(len(ranked), dtype=bool)
    return xr.Dataset(
        {
            "circuit": ("edge", chosen),
            "n_edges": int(chosen.sum()),
            "faithfulness": ("taken", found),
            "error": ("taken", setting.error(values)),
            "n_pruned": ("taken", kept.sum(1)),
            "score": ("edge", strength),
            "rank": ("edge", rank),
        },
        coords={**edge_coordinates(setting.edges), "taken": taken},
        attrs={
            **setting.attrs,
            "method": f"top n by {scores.name or 'score'}" + (", connected" if connected else ""),
            "ranked_by": "score" if signed else "size of the score",
            "target": target,
        },
    )


def _values_by_size(
    setting: Setting, rank: Int[np.ndarray, " edge"], target: float
) -> dict[int, Float[np.ndarray, " prompt"]]:
    """The metric of every prompt by number of edges taken, ascending: for all numbers, or those that are needed."""
    _ = setting.span
    n_edges = len(rank)
    sizes = list(range(n_edges + 1)) if n_edges <= LARGE else _growing_sizes(n_edges)
    found = dict(zip(sizes, setting.values(rank <= np.array(sizes)[:, None]), strict=True))
    reached = setting.share(np.stack(list(found.values()))) >= target - ROUNDING
    if reached.any() and reached.argmax() > 0:
        low, high = (sizes[reached.argmax() + step] for step in (-1, 0))
        while high - low > 1:
            middle = (low + high) // 2
            found[middle] = setting.values((rank <= middle)[None])[0]
            enough = setting.share(found[middle][None])[0] >= target - ROUNDING
            low, high = (low, middle) if enough else (middle, high)
    return dict(sorted(found.items()))


def _growing_sizes(n_edges: int) -> list[int]:
    """Numbers from 0 to that of all edges, each about a fifth larger than the one before."""
    n_steps = int(4 * np.log2(n_edges)) + 1
    return [0, *dict.fromkeys(np.geomspace(1, n_edges, n_steps).round().astype(int).tolist())]


def edge_order(paths: EdgePaths, scores: Float[np.ndarray, " edge"], *, signed: bool, connected: bool) -> list[int]:
    """Numbers of the edges, in the order in which they are taken."""
    if scores.ndim != 1 or np.isnan(scores).any():
        raise InputError(f"scores must be one number per edge; got shape {scores.shape}, {np.isnan(scores).sum()} NaN")
    strength = scores if signed else abs(scores)
    if not connected:
        return np.argsort(-strength, kind="stable").tolist()
    into = {reader: list(zip(-strength[edges], edges.tolist(), strict=True)) for reader, edges in paths.into.items()}
    writers: dict[int, Part] = {number: writer for writer, edges in paths.from_.items() for number in edges.tolist()}
    ranked, open_ = [], into.pop(LOGITS)
    heapq.heapify(open_)
    while open_:
        _, number = heapq.heappop(open_)
        ranked.append(number)
        for reader in paths.readers.get(writers[number], ()):
            for entry in into.pop(reader, ()):
                heapq.heappush(open_, entry)
    return ranked


def exhaustive_search(setting: Setting, *, target: float = TARGET) -> xr.Dataset:
    """Every circuit of a small model, with at most 16 edges.

    Returns `faithfulness` over `number`: of the circuit that has edge e if bit e of its number is set; `minimal` over
    (alternative, edge): the minimal circuits, the smallest first; `frontier` and `best` over n_edges: the highest
    faithfulness, and (with edge) a circuit that has it. Raises InputError for more edges, and as `Setting.span`.
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
    small = np.flatnonzero(minimal_sets(found >= target - ROUNDING))
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
            **edge_coordinates(setting.edges),
            "number": range(len(masks)),
            "alternative": range(len(small)),
            "size": ("alternative", size[small]),
            "n_edges": range(n_edges + 1),
        },
        attrs={**setting.attrs, "method": "every set of edges", "target": target},
    )


def minimal_sets(reached: Bool[np.ndarray, " circuit"]) -> Bool[np.ndarray, " circuit"]:
    """True for sets that reach a target while none of their subsets does; bit e of a set's number is its element e."""
    below = reached.copy()
    n_elements = len(reached).bit_length() - 1
    for element in range(n_elements):
        half = below.reshape(-1, 2, 2**element)
        half[:, 1] |= half[:, 0]
    smaller = np.zeros_like(reached)
    for element in range(n_elements):
        smaller.reshape(-1, 2, 2**element)[:, 1] |= below.reshape(-1, 2, 2**element)[:, 0]
    return reached & ~smaller


def compare_with_exact(truth: xr.Dataset, circuits: xr.DataArray) -> xr.Dataset:
    """Circuits, over edge after any other axes, beside the truth from `exact` for the same model.

    `size_ratio`: edges by those of the smallest circuit that reaches the target. `jaccard`: shared edges by edges of
    either, with the nearest minimal circuit. `gap`: the highest faithfulness of that size minus its own. InputError
    where the circuits are of another model, or no circuit reaches the target.
    """
    if not truth.sizes["alternative"]:
        raise InputError("no circuit reaches the target of truth, so that nothing can be compared with it")
    circuits = align_to_edges(truth["edge"].values, circuits).astype(bool)
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
