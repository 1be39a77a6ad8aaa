"""The quality of a circuit: is it faithful, complete, minimal, and better than random ones of its size?

*Faithfulness*: how much of what the model does a circuit does by itself, the ratio of `setting`: Hanna et al. 2024
("Have faith in faithfulness"), Marks et al. 2024 ("Sparse feature circuits"). `value` is not normalised: with logit
differences its mean is F(C) of Wang et al. 2022 ("Interpretability in the wild"), with KL the number that ACDC (Conmy
et al. 2023) bounds. For a pruned circuit `value`, `full` and `empty` are what EAP-IG's `evaluate_graph` (with
`patching`) and `evaluate_baseline` return. `value` is also what auto-circuit's `run_circuits` gives under `TREE_PATCH`
and `RESAMPLE`; in its `answer_diff_percent` 0 is no preference, and not the empty circuit. Faithfulness shows that the
circuit's edges together suffice, given corrupted (or mean, or no) values elsewhere. It does not show that they are
needed, nor that no other circuit does the same.

*Completeness*: whether a circuit is all there is. Where the circuit C is complete, the same knockout does the same to
both. For sets K of its edges

    incompleteness(C, K) = |faithfulness(C - K) - faithfulness(all - K)|,

the score of Wang et al. 2022, there with K of nodes. K is every single edge of C; random subsets, each edge with
probability 1/2; and all of C: faithfulness(all - C) is what the model does without the circuit, the completeness of
Marks et al. 2024. auto-circuit's `same_under_knockout` runs the same two graphs and gives KL between their predictions,
with learned knockouts. A low score shows that these knockouts find nothing outside the circuit that makes up for what
is lost in it. It does not show that no other knockout would, and worst sets are rarely drawn at random.

*Minimality*: whether every edge of a circuit is needed in it. For an edge e of the circuit C, or all edges of C into
and out of a part,

    loss(e) = faithfulness(C) - faithfulness(C - e).

C is minimal in the weak sense if no single edge can be dropped so that faithfulness stays at least at the target. That
no set of edges can be dropped is more, and `exact` alone says it. A loss shows what each edge adds given the rest of
the circuit, not what it adds to the model: where two edges of the circuit do the same, neither is needed.

*Against random circuits* of the same size. `uniform`: any set of that many edges, each as likely. `connected` (the
default): edges are taken in a random order until the pruned form of what was taken has that many, as a meaningless
ranking would give; if it jumps over the number, it is drawn anew. Most small sets of edges hold no path to the logits,
and so are the empty circuit: to beat them is no merit. Measured are faithfulness; incompleteness, its mean over the
knockouts; and minimality, the smallest loss of a single edge. With r of n random circuits at least as good,
p = (1 + r) / (1 + n). A small p shows that the choice of edges matters, for a circuit that was chosen on *other*
prompts. It does not show that no other circuit is as good: random draws rarely meet the best ones.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float

from mnemoscope.analyses.discovery.setting import ROUNDING, TARGET, UNIT, Setting, circuit_masks, circuit_nodes
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.numerics import to_numpy
from mnemoscope.core.seeding import generator, stream_seed
from mnemoscope.core.site import LOGITS, edge_coordinates

N_SETS = 20
Draw = Literal["connected", "uniform"]
Measure = Literal["faithfulness", "incompleteness", "minimality"]
MEASURES: tuple[Measure, ...] = get_args(Measure)
_ROUNDS = 100
_TIED = 1e-5
"""Circuits whose measures differ by less are as good as each other: runs are equal to so much."""


def faithfulness(setting: Setting, circuits: xr.DataArray) -> xr.Dataset:
    """Faithfulness of circuits.

    `circuits` are truth values over edge, after any other axes, which the result keeps. Raises InputError where they
    are no circuits of the model, and as `Setting.span`.

    Returns:
        `faithfulness`, its standard error over prompts `error`, and `n_edges`, over the axes of `circuits` but edge;
        `value` with prompt: the metric of the circuit; `full` and `empty` over prompt: that of the whole model and of
        the empty circuit.

    >>> setting = ms.analyses.Setting(model=model, pairs=pairs)
    >>> whole = ms.analyses.circuit(setting.edges, map(str, setting.edges))
    >>> ms.analyses.faithfulness(setting, whole).faithfulness.round(3).item()
    1.0
    """
    masks = circuit_masks(setting.edges, circuits)
    rest = circuits.drop_vars("edge").transpose(..., "edge").isel(edge=0, drop=True)
    values = setting.values(masks.reshape(-1, masks.shape[-1]))
    found = {"faithfulness": setting.share(values), "error": setting.error(values)}
    full, empty = setting.ends
    return xr.Dataset(
        {
            **{name: (rest.dims, given.reshape(rest.shape)) for name, given in found.items()},
            "n_edges": (rest.dims, masks.sum(-1)),
            "value": ((*rest.dims, "prompt"), values.reshape(*rest.shape, -1)),
            "full": ("prompt", full),
            "empty": ("prompt", empty),
        },
        coords={**rest.coords, "prompt": range(len(setting.pairs))},
        attrs={**setting.attrs, "unit": UNIT},
    )


def completeness(setting: Setting, circuit: xr.DataArray, *, n_sets: int = N_SETS, seed: int = 0) -> xr.Dataset:
    """The effects of knockouts on a circuit and on the whole model.

    `circuit` is truth values over edge. `n_sets` random sets of its edges come from the seed's stream `knockouts`.
    Raises InputError where it is no circuit of the model or has no edge, and as `Setting.span`.

    Returns:
        Over `knockout` (the name of an edge, `random 0` and so on, `all`): `incompleteness`; `circuit` and `model`: the
        faithfulness of either without these edges; and with edge `knocked_out`. `mean` and `worst` over all knockouts.

    >>> setting = ms.analyses.Setting(model=model, pairs=pairs)
    >>> found = ms.analyses.greedy(setting, target=0.9)
    >>> ms.analyses.completeness(setting, found.circuit, n_sets=2).worst.item() >= 0
    True
    """
    inside = single_circuit(setting, circuit)
    in_range("n_sets", n_sets, 0, float("inf"))
    out = knockouts(inside[None], n_sets, seed)[0]
    within, without = faithfulness_without(setting, inside[None], out[None])[:, 0]
    names = [str(setting.edges[number]) for number in np.flatnonzero(inside)]
    return xr.Dataset(
        {
            "incompleteness": ("knockout", abs(within - without)),
            "circuit": ("knockout", within),
            "model": ("knockout", without),
            "knocked_out": (("knockout", "edge"), out),
            "mean": abs(within - without).mean(),
            "worst": abs(within - without).max(),
        },
        coords={
            "knockout": [*names, *(f"random {number}" for number in range(n_sets)), "all"],
            "edge": [str(edge) for edge in setting.edges],
        },
        attrs={**setting.attrs, "unit": UNIT, "seed": seed},
    )


def knockouts(
    circuits: Bool[np.ndarray, "circuit edge"], n_sets: int, seed: int
) -> Bool[np.ndarray, "circuit knockout edge"]:
    """Every single edge of each of some circuits of the same size, random sets of its edges, and all of them."""
    size = int(circuits[0].sum())
    assert (circuits.sum(1) == size).all()
    draws = np.random.default_rng(stream_seed(seed, "knockouts"))
    single = np.zeros((len(circuits), size, circuits.shape[1]), dtype=bool)
    circuit, edge = circuits.nonzero()
    single[circuit, np.tile(np.arange(size), len(circuits)), edge] = True
    drawn = circuits[:, None] & (draws.random((len(circuits), n_sets, circuits.shape[1])) < 1 / 2)
    return np.concatenate([single, drawn, circuits[:, None]], 1)


def faithfulness_without(
    setting: Setting, circuits: Bool[np.ndarray, "circuit edge"], out: Bool[np.ndarray, "circuit knockout edge"]
) -> Float[np.ndarray, "2 circuit knockout"]:
    """Faithfulness of circuits without some edges, and of the whole model without them."""
    masks = np.stack([circuits[:, None] & ~out, ~out])
    return setting.faithfulness(masks.reshape(-1, masks.shape[-1])).reshape(masks.shape[:-1])


def single_circuit(setting: Setting, circuit: xr.DataArray) -> Bool[np.ndarray, " edge"]:
    """A single circuit of the model that has edges; all else is refused."""
    inside = circuit_masks(setting.edges, circuit)
    if inside.ndim != 1 or not inside.any():
        raise InputError(
            f"circuit must be one circuit with at least one edge; got shape {inside.shape}, {inside.sum()} edges"
        )
    return inside


def minimality(setting: Setting, circuit: xr.DataArray, *, target: float = TARGET) -> xr.Dataset:
    """The losses of a circuit with each of its edges and parts.

    `circuit` is truth values over edge; a faithfulness of `target` is enough. Errors are those of `completeness`.

    Returns:
        `loss` and `needed` over edge: NaN and False outside the circuit; needed: without it the target is missed.
        `node_loss` over node, its heads and MLPs. `faithfulness` of the circuit, and `minimal`: whether it reaches the
        target and needs all its edges.

    >>> setting = ms.analyses.Setting(model=model, pairs=pairs)
    >>> found = ms.analyses.greedy(setting, target=0.9)
    >>> ms.analyses.minimality(setting, found.circuit).loss.dims
    ('edge',)
    """
    in_range("target", target, 0, 1)
    inside = single_circuit(setting, circuit)
    names = edge_coordinates(setting.edges)
    writer, reader = (np.array(names[end][1]) for end in ("writer", "reader"))
    sources = {str(name) for name in writer} - {str(name) for name in reader}
    parts = [name for name in circuit_nodes(circuit) if name not in (LOGITS, *sources)]
    numbers = np.flatnonzero(inside)
    masks = np.tile(inside, (1 + len(numbers) + len(parts), 1))
    masks[np.arange(1, 1 + len(numbers)), numbers] = False
    for row, name in enumerate(parts, 1 + len(numbers)):
        masks[row, (writer == name) | (reader == name)] = False
    found = setting.faithfulness(masks)
    left = found[1 : 1 + len(numbers)]
    loss, needed = np.full(len(inside), np.nan), np.zeros(len(inside), dtype=bool)
    loss[numbers], needed[numbers] = found[0] - left, left < target - ROUNDING
    return xr.Dataset(
        {
            "loss": ("edge", loss),
            "needed": ("edge", needed),
            "node_loss": ("node", found[0] - found[1 + len(numbers) :]),
            "faithfulness": found[0],
            "minimal": bool(found[0] >= target - ROUNDING and needed[inside].all()),
        },
        coords={**names, "node": parts},
        attrs={**setting.attrs, "target": target, "unit": UNIT},
    )


@check_arguments
def against_random(
    setting: Setting,
    circuit: xr.DataArray,
    *,
    n: int = 200,
    draw: Draw = "connected",
    measures: Sequence[Measure] = MEASURES,
    n_sets: int = N_SETS,
    seed: int = 0,
) -> xr.Dataset:
    """A circuit among random ones of the same size.

    `circuit` is truth values over edge; its pruned form is taken, whose number of edges is the size. `n` random
    circuits of the kind `draw` are drawn with replacement from the seed's stream `circuits`. Incompleteness runs each
    of them twice for every knockout, `n_sets` of which are random.

    Returns:
        Over measure: `value` of the circuit, `p`, and `rank` (1: none is better); `random` with draw.

    Raises:
        InputError: It is no circuit of the model, or none of its edges matters; there are no random circuits of that
            size; or as `Setting.span`.

    >>> setting = ms.analyses.Setting(model=model, pairs=pairs)
    >>> found = ms.analyses.greedy(setting, target=0.9)
    >>> ms.analyses.against_random(setting, found.circuit, n=5, n_sets=2).p.dims
    ('measure',)
    """
    in_range("n", n, 1, float("inf"))
    one_of("draw", draw, get_args(Draw))
    for measure in measures:
        one_of("a measure", measure, MEASURES)
    inside = setting.prune(single_circuit(setting, circuit))
    if not inside.any():
        raise InputError("no edge of circuit lies on a path to the logits, so that it has no size to compare at")
    masks = np.concatenate([inside[None], random_circuits(setting, int(inside.sum()), n=n, draw=draw, seed=seed)])
    found = np.stack([_measured(setting, masks, measure, n_sets, seed) for measure in measures])
    worse = np.array([-1.0 if measure == "incompleteness" else 1.0 for measure in measures])[:, None] * found
    ahead = worse[:, 1:] - worse[:, :1]
    better, ties = (ahead > _TIED).sum(1), (ahead >= -_TIED).sum(1)
    known = ~np.isnan(found[:, 0])
    return xr.Dataset(
        {
            "value": ("measure", found[:, 0]),
            "random": (("measure", "draw"), found[:, 1:]),
            "p": ("measure", np.where(known, (1 + ties) / (1 + n), np.nan)),
            "rank": ("measure", np.where(known, 1 + better, np.nan)),
        },
        coords={"measure": list(measures), "draw": range(n)},
        attrs={**setting.attrs, "random_circuits": draw, "n_random": n, "n_edges": int(inside.sum()), "seed": seed},
    )


def random_circuits(
    setting: Setting, size: int, *, n: int, draw: Draw = "connected", seed: int = 0
) -> Bool[np.ndarray, "circuit edge"]:
    """Random circuits with a number of edges; refused where a hundred rounds of draws bring together too few."""
    stream, found = generator(seed, "circuits", draw), []
    for _ in range(_ROUNDS):
        place = to_numpy(torch.rand(n, len(setting.edges), generator=stream, dtype=torch.float32).argsort(1).argsort(1))
        masks = place < size if draw == "uniform" else _grow_circuits(setting, place, size)
        found = [*found, *masks[masks.sum(1) == size]]
        if len(found) >= n:
            return np.array(found[:n])
    raise InputError(f"only {len(found)} of {n} {draw} random circuits with {size} edges were found; draw uniform ones")


def _grow_circuits(setting: Setting, place: np.ndarray, size: int) -> Bool[np.ndarray, "circuit edge"]:
    """The pruned form of the shortest beginning of each order whose pruned form has at least some size."""
    low, high = np.zeros(len(place), dtype=int), np.full(len(place), place.shape[1])
    while (low < high).any():  # pruned forms grow with what is taken
        middle = (low + high) // 2
        enough = setting.prune(place < middle[:, None]).sum(1) >= size
        low, high = np.where(enough, low, middle + 1), np.where(enough, middle, high)
    return setting.prune(place < high[:, None])


def _measured(
    setting: Setting, masks: Bool[np.ndarray, "circuit edge"], measure: Measure, n_sets: int, seed: int
) -> Float[np.ndarray, " circuit"]:
    if measure == "faithfulness":
        return setting.faithfulness(masks)
    n_edges = int(masks[0].sum())
    n_each = 2 * (n_edges + n_sets + 1) if measure == "incompleteness" else n_edges + 1
    setting.check_time(len(masks) * n_each, f"{measure} beside random circuits", "ask for measures=['faithfulness']")
    if measure == "incompleteness":
        within, without = faithfulness_without(setting, masks, knockouts(masks, n_sets, seed))
        return abs(within - without).mean(1)
    single = knockouts(masks, 0, seed)[:, :n_edges]
    left = setting.faithfulness((masks[:, None] & ~single).reshape(-1, masks.shape[1]))
    return setting.faithfulness(masks) - left.reshape(len(masks), n_edges).max(1)
