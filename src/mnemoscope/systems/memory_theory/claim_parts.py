"""Parts that the three claims share: effects of a draw, criteria, explanations, and planted tables of capacities.

Where fewer than two associations are stored at some size, nothing grows: slopes count as 0, and N ln N as 1.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import xarray as xr

from mnemoscope import Claim
from mnemoscope.claims import Case, ClaimTexts, Measured, most, table
from mnemoscope.systems.memory_theory.capacity import LAW, PLAIN, amounts, growth, law_capacity

LEAST, LARGEST, LARGEST_MLP, LARGEST_SUM = 8, 64, 23, 512
"""Dimensions that are judged: from 2^3 by half powers to 2^6, of MLPs to 2^4.5; of sums from 2^5 to 2^9."""
TOLERANCE = 0.1
"""Half of what tells the slopes of the law and of its nearest rival, N like P, apart at these sizes."""
QUARTER = 0.25
FACTORS_OF_TWO = 2
"""N ln N may be a quarter of the parameters, or four times as many."""

TEXTS = ClaimTexts(Path(__file__).with_name("claims") / "texts.yaml", {"tolerance": TOLERANCE})
"""The texts of the claims, from `texts.yaml`."""
about_capacity = partial(Claim, system="memory-theory", source="Bietti et al. 2023", replicate="draw", develops=False)
_SLOPE = "slope"
AS_PUBLISHED = (
    most("law", "within", TOLERANCE, _SLOPE),
    most("per_parameter", "within", FACTORS_OF_TWO, "factors of two"),
)
LIKE_PARAMETERS = (most("plain", "within", TOLERANCE, _SLOPE),)
LIKE_WIDTH = (most("width", "within", TOLERANCE, _SLOPE),)
FEWER = (most("share", "below", QUARTER, "associations per parameter"),)


def half_powers(least: int, largest: int) -> tuple[int, ...]:
    """Dimensions from the least to the largest, powers of the root of two rounded to whole numbers."""
    first, last = (round(2 * math.log2(d)) for d in (least, largest))
    return tuple(round(2 ** (k / 2)) for k in range(first, last + 1))


def effects(found: xr.Dataset) -> dict[str, float]:
    """The effects of the only draw, and beside them the number stored at every size (`n_8` and so on).

    `found` holds `capacity` over d and draw, and `parameters` over d.
    """
    capacity, largest = found.capacity.isel(draw=0), found.capacity.isel(draw=0, d=-1)
    slopes = growth(found.capacity, found.parameters).slope.isel(draw=0).fillna(0.0)
    law, plain = (float(slopes.sel(law=name)) for name in (LAW, PLAIN))
    parameters = int(found.parameters[-1])
    amount = max(float(amounts(largest).sel(law=LAW)), 1.0)
    return {
        "law": law - 1,
        "plain": plain - 1,
        "width": plain - 0.5,
        "per_parameter": math.log2(amount / parameters),
        "share": float(largest) / parameters,
        **{f"n_{d}": float(n) for d, n in zip(found.d.values, capacity.values, strict=True)},
    }


def capacities(stored: Mapping[int, float]) -> xr.Dataset:
    """A table instead of a measurement: the number stored by dimension, of d² parameters."""
    sizes = list(stored)
    data = {"capacity": (("d", "draw"), [[n] for n in stored.values()]), "parameters": ("d", [d**2 for d in sizes])}
    return xr.Dataset(data, coords={"d": sizes, "draw": [0]})


def planted(name: str, stored: Callable[[int], float], sizes: Sequence[int], **beside: float) -> Case:
    """A control: a table of capacities, by a function of the dimension, and effects that a claim has besides."""
    measured: Measured = {**effects(capacities({d: stored(d) for d in sizes})), **beside}
    return table(name, {"draw": measured})


def by_law(d: int, *, share: float = 1.0) -> float:
    """N with N ln N a share of d²."""
    return law_capacity(d**2, share=share)


def like_parameters(d: int) -> float:
    """As many as parameters: half of d²."""
    return d**2 / 2


def like_width(d: int) -> float:
    """As many as dimensions."""
    return float(d)


def tables(sizes: Sequence[int], **beside: float) -> dict[str, Case]:
    """Planted tables by word: the law, a sixteenth of it, and both rivals."""
    return {
        "law": planted("N log N equal to the parameters", by_law, sizes, **beside),
        "sixteenth": planted("N log N a sixteenth of the parameters", partial(by_law, share=1 / 16), sizes, **beside),
        "parameters": planted("half as many as parameters", like_parameters, sizes, **beside),
        "width": planted("as many as dimensions", like_width, sizes, **beside),
    }
