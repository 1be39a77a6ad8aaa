"""The permutation lookup task in plain Python, written from its description: what the package is compared with."""

from fractions import Fraction
from itertools import permutations


def all_mappings(n_values: int) -> list[tuple[int, ...]]:
    return list(permutations(range(1, n_values + 1)))


def rows(batch) -> list[tuple[list[int], list[int]]]:
    """The x and the y of every sequence."""
    tokens = [[*i, t[-1]] for i, t in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True)]
    return [(row[0::2], row[1::2]) for row in tokens]


def _uniform(values, n_values: int) -> list[Fraction]:
    values = list(values)
    return [Fraction(values.count(v), len(values)) for v in range(n_values + 1)]


def posterior(xs, ys, slot: int, mappings, n_values: int) -> list[Fraction] | None:
    """Distribution of y at `slot` (from 0) over the mappings that agree with the earlier pairs; None: there is none."""
    consistent = [m for m in mappings if all(m[x - 1] == y for x, y in zip(xs[:slot], ys[:slot], strict=True))]
    return _uniform([m[xs[slot] - 1] for m in consistent], n_values) if consistent else None


def elimination(_, ys, slot: int, n_values: int) -> list[Fraction]:
    return _uniform(set(range(1, n_values + 1)) - set(ys[:slot]), n_values)


def recall(xs, ys, slot: int, n_values: int) -> list[Fraction]:
    if xs[slot] in xs[:slot]:
        return _uniform([ys[xs.index(xs[slot])]], n_values)
    return _uniform(range(1, n_values + 1), n_values)


def latents(xs, ys, n_values: int) -> dict:
    """What the tokens of a complete sequence say; fails if they are no sequence of the task."""
    values = set(range(1, n_values + 1))
    assert len(xs) == len(ys) == n_values
    assert set(xs) | set(ys) <= values
    assert len(set(xs[:-1])) == len(set(ys[:-1])) == n_values - 1
    (unused,) = values - set(ys[:-1])
    (missing,) = values - set(xs[:-1])
    image = dict(zip(xs[:-1], ys[:-1], strict=True)) | {missing: unused}
    assert ys[-1] == image[xs[-1]]
    is_repeat = xs[-1] != missing
    slot = xs.index(xs[-1]) + 1 if is_repeat else 0
    return {
        "x": xs,
        "y": ys,
        "mapping": [image[x] for x in sorted(values)],
        "is_repeat": is_repeat,
        "source_slot": slot,
        "source_pos": 2 * (slot - 1) if is_repeat else -1,
        "recalled": ys[slot - 1] if is_repeat else 0,
        "unused": unused,
    }
