"""The overlap of circuits, beside that of random circuits of the same sizes.

The overlap of two circuits is their Jaccard index, shared edges by edges of either. For a set of pairs of circuits
the statistic is its mean. Chance is the same mean where every circuit is replaced by a random one of its size
(`random_circuits`, connected), drawn independently of the others: p = (1 + those at least as high) / (1 + n). Where two
choices are compared on several draws, the draws are no replicates: two circuits that agree by chance do so on every
draw. The mean over draws then stands beside single pairs of random circuits, not beside their mean.

An edge is in k of m circuits. A random circuit of the size of each has it with a probability that is counted among the
random ones, (1 + those with it) / (1 + n). With independent circuits, k exceeds what is expected with a probability of
at most that under the binomial of the mean probability, if k is above the mean by one or more (Hoeffding 1956): this is
p, and q is it over all edges of the graph (Benjamini-Yekutieli).

A small p shows that circuits agree more than meaningless rankings do. It does not show that they are right: searches
that share a bias agree too.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import binom, false_discovery_control

from mnemoscope.analyses.discovery.criteria import random_circuits
from mnemoscope.analyses.discovery.setting import Setting
from mnemoscope.core.seeding import stream_seed

Place = tuple[int, int]
"""The place of a circuit among those that are compared: change or seed, and draw."""


def jaccard(one: Bool[np.ndarray, "*circuits edge"], other: Bool[np.ndarray, "*circuits edge"]) -> np.ndarray:
    """Shared edges by edges of either; NaN for two empty circuits."""
    both, either = (one & other).sum(-1), (one | other).sum(-1)
    return np.divide(both, either, out=np.full(np.shape(both), np.nan), where=either > 0)


class RandomCircuits:
    """Random circuits of any size on the graph of one model.

    There are `n_random` for each of `n_circuits` circuits. Those of a size are drawn once, when they are first needed,
    and circuit k takes them in an order shifted by k: two circuits never have the same random one at a time.
    """

    def __init__(self, *, n_random: int, n_circuits: int, seed: int):
        self.n_random, self.seed = n_random, seed
        self.n_drawn = max(n_random, n_circuits)
        self._drawn: dict[tuple[bool, int], np.ndarray] = {}

    def draw(self, setting: Setting, size: int, number: int) -> Bool[np.ndarray, "null edge"]:
        """The random circuits in the place of circuit `number`, of a size, pruned as in its setting."""
        return self._every(setting, size, -number)[: self.n_random]

    def frequency(self, setting: Setting, size: int) -> Float[np.ndarray, " edge"]:
        """The probability that a random circuit has each edge, from above: one more is counted than was seen."""
        return (1 + self._every(setting, size).sum(0)) / (1 + self.n_drawn)

    def _every(self, setting: Setting, size: int, shift: int = 0) -> Bool[np.ndarray, "null edge"]:
        from_embeddings = setting.replacement == "patch"
        kind = from_embeddings, size
        if kind not in self._drawn:
            seed = stream_seed(self.seed, "stability", int(from_embeddings), size)
            self._drawn[kind] = np.packbits(random_circuits(setting, size, n=self.n_drawn, seed=seed), axis=1)
        packed = np.roll(self._drawn[kind], shift, axis=0)
        return np.unpackbits(packed, axis=1, count=len(setting.edges)).astype(bool)


def pair_overlaps(
    pairs: Sequence[tuple[Place, Place]],
    circuits: Callable[[Place], Bool[np.ndarray, " edge"]],
    random: Callable[[Place], Bool[np.ndarray, "null edge"]],
) -> tuple[Float[np.ndarray, " pair"], Float[np.ndarray, "pair null"]]:
    """The overlap of every pair of circuits, and of the random ones in their places."""
    drawn = {place: random(place) for place in {place for pair in pairs for place in pair}}
    each = [jaccard(circuits(one), circuits(other)) for one, other in pairs]
    by_chance = [jaccard(drawn[one], drawn[other]) for one, other in pairs]
    return np.array(each), np.array(by_chance)


def overlap_test(each: Float[np.ndarray, " pair"], random: Float[np.ndarray, " null"]) -> dict[str, float]:
    """The mean overlap `jaccard`, that of random circuits `by_chance`, and `p_jaccard`; NaN without pairs."""
    if not len(each):
        return dict.fromkeys(("jaccard", "by_chance", "p_jaccard"), np.nan)
    observed = float(each.mean())
    p = (1 + (random >= observed - 1e-12).sum()) / (1 + len(random))
    return {"jaccard": observed, "by_chance": float(random.mean()), "p_jaccard": float(p)}


def edge_tests(
    circuits: Bool[np.ndarray, "circuit edge"], frequency: Float[np.ndarray, "circuit edge"]
) -> dict[str, Float[np.ndarray, " edge"]]:
    """The `share` of circuits with each edge, the `expected` one, `p` and `q`; NaN without circuits."""
    m, n_edges = circuits.shape
    if not m:
        return {name: np.full(n_edges, np.nan) for name in ("share", "expected", "p", "q")}
    share, expected = circuits.mean(0), frequency.mean(0)
    p = binom.sf(circuits.sum(0) - 1, m, expected)
    return {"share": share, "expected": expected, "p": p, "q": false_discovery_control(p, method="by")}
