"""Circuits of several seeds: does another training give the same circuit?

Heads are compared by role, since their numbers mean nothing across seeds. The overlap is the mean Jaccard index over
pairs of seeds; chance is that of random circuits of the same sizes on the graph of each seed, renamed by its roles
(`chance`). A seed counts once, with its circuit on one draw of prompts.

*Does not show* that seeds with another circuit do something else: a wrong role moves all edges of two heads.
"""

from itertools import combinations

import numpy as np
import xarray as xr
from jaxtyping import Bool, Int

from mnemoscope.analyses.discovery.chance import Place, RandomCircuits, edge_tests, overlap_test, pair_overlaps
from mnemoscope.analyses.discovery.setting import Setting
from mnemoscope.analyses.discovery.stability import CORE
from mnemoscope.core.errors import InputError, in_range


def seed_stability(
    setting: Setting, circuits: xr.DataArray, *, core: float = CORE, n_random: int = 200, seed: int = 0
) -> xr.Dataset:
    """The overlap of circuits of several seeds, and the edges that stay.

    Args:
        setting: That of any of the seeds: all have its graph, but for the names of heads.
        circuits: Truth values over (seed, edge), by role, with a coordinate `component`, the edge by head number, as
            from `ms.analyses.edges_by_role`; no edge where a seed has no circuit.
        core: Share of seeds from which on an edge belongs to the core.
        n_random: Random circuits for each seed.
        seed: Random circuits come from its streams.

    Returns:
        `jaccard`, `by_chance`, `p_jaccard`; `random` over null; `overlap` over seed, the mean with the others;
        `share`, `expected`, `p`, `q`, `core` over edge; `n_found`.

    Raises:
        InputError: There are fewer than two seeds, or the edges are not those of the setting.

    >>> setting = ms.analyses.Setting(model=model, pairs=pairs)
    >>> names = ("edge", [str(edge) for edge in setting.edges])
    >>> circuit = ms.analyses.greedy(setting, target=0.9).circuit.assign_coords(component=names)
    >>> both = xr.concat([circuit, circuit], xr.Variable("seed", [0, 1]))
    >>> ms.analyses.seed_stability(setting, both, n_random=20).jaccard.item()
    1.0
    """
    in_range("core", core, 0, 1)
    in_range("n_random", n_random, 1, float("inf"))
    members, columns = _by_seed(setting, circuits)
    sizes = members.sum(-1)
    there = np.flatnonzero(sizes).tolist()
    chance = RandomCircuits(n_random=n_random, n_circuits=len(members), seed=seed)

    def drawn(place: Place) -> Bool[np.ndarray, "null edge"]:
        at, _ = place
        random = chance.draw(setting, int(sizes[at]), at)
        return np.pad(random, ((0, 0), (0, 1)))[:, columns[at]]

    pairs = [((one, 0), (other, 0)) for one, other in combinations(there, 2)]
    each, by_chance = pair_overlaps(pairs, lambda place: members[place[0]], drawn)
    random = by_chance.mean(0) if pairs else np.full(n_random, np.nan)
    with_seed = np.array([[at in (one[0], other[0]) for one, other in pairs] for at in range(len(members))])
    overlap = [each[mine].mean() if mine.any() else np.nan for mine in with_seed.reshape(len(members), len(pairs))]
    often = [np.append(chance.frequency(setting, int(sizes[at])), 0)[columns[at]] for at in there]
    edges = edge_tests(members[there], np.array(often))
    return xr.Dataset(
        {
            **overlap_test(each, random),
            "random": ("null", random),
            "overlap": ("seed", overlap),
            **{name: ("edge", values) for name, values in edges.items()},
            "core": ("edge", edges["share"] >= core),
            "n_found": len(there),
        },
        coords={"edge": circuits.edge.values, "seed": circuits.seed.values},
        attrs={**setting.attrs, "core": core, "n_random": n_random},
    )


def _by_seed(
    setting: Setting, circuits: xr.DataArray
) -> tuple[Bool[np.ndarray, "seed edge"], Int[np.ndarray, "seed edge"]]:
    """Circuits, and the number of each edge on the graph of its seed; the number of all edges where there is none."""
    if set(circuits.dims) != {"seed", "edge"} or "component" not in circuits.coords or circuits.sizes["seed"] < 2:
        raise InputError(
            f"circuits must be over (seed, edge) with at least two seeds and a coordinate component; got "
            f"{dict(circuits.sizes)}; align them with ms.analyses.edges_by_role"
        )
    component = circuits["component"].broadcast_like(circuits).transpose("seed", "edge")
    numbers = {str(edge): number for number, edge in enumerate(setting.edges)}
    absent = sorted({str(name) for name in np.ravel(component.values)} - {*numbers, ""})
    if absent:
        raise InputError(
            f"circuits must be on the edges of setting; it has no {absent[0]}; take a model like the seeds"
        )
    columns = [[numbers.get(str(name), len(numbers)) for name in row] for row in component.values]
    return circuits.transpose("seed", "edge").values == 1, np.array(columns)
