"""Whether a circuit is all there is: what happens when parts of it are knocked out of it and of the whole model.

Where the circuit C is complete, the same knockout does the same to both. For sets K of its edges

    incompleteness(C, K) = |faithfulness(C - K) - faithfulness(all - K)|,

the score of Wang et al. 2022 ("Interpretability in the wild"), there with K of nodes, here of edges, and as a share of
the difference between the model and the empty circuit. K is every single edge of C; random subsets, each edge with
probability 1/2; and all of C. For the last, C - K is empty and faithfulness(all - C) itself is left: what the model
does without the circuit, the completeness of Marks et al. 2024 ("Sparse feature circuits").

auto-circuit's `same_under_knockout` runs the same two graphs, C - K and all - K, and gives KL between their predictions
instead of the difference of a metric: two predictions can differ by KL while the metric agrees, so the numbers differ.
Its knockouts are learned, to make the difference large.

A low score shows that these knockouts find nothing outside the circuit that makes up for what is lost in it. It does
not show that no other knockout would, and worst sets are rarely drawn at random. A part that the circuit lacks and that
is idle until another one fails shows here only.
"""

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from mnemoscope.analyses.discovery.setting import Setting
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.seeding import stream_seed

N_SETS = 20


def completeness(setting: Setting, circuit: xr.DataArray, *, n_sets: int = N_SETS, seed: int = 0) -> xr.Dataset:
    """What knockouts do to a circuit and to the whole model.

    Args:
        setting: What they are measured on.
        circuit: Truth values over edge.
        n_sets: Random sets of its edges, drawn from the seed's stream `knockouts`.
        seed: Of these.

    Returns:
        Over `knockout` (the name of an edge, `random 0` and so on, `all`): `incompleteness`; `circuit` and `model`: the
        faithfulness of either without these edges; and with edge `knocked_out`. `mean` and `worst` over all knockouts.

    Raises:
        InputError: It is no circuit of the model or has no edge, or as `Setting.span`.
    """
    inside = one(setting, circuit)
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
        attrs={
            **setting.attrs,
            "unit": "share of the difference between the model and the empty circuit",
            "seed": seed,
        },
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


def one(setting: Setting, circuit: xr.DataArray) -> Bool[np.ndarray, " edge"]:
    """A single circuit that has edges.

    Raises:
        InputError: It is no circuit of the model, several, or empty.
    """
    inside = setting.members(circuit)
    if inside.ndim != 1 or not inside.any():
        raise InputError(
            f"circuit must be one circuit with at least one edge; got shape {inside.shape}, {inside.sum()} edges"
        )
    return inside
