"""The figures that the sources report for tiny-recall, beside ours.

The sources evaluate 5,000 samples on unseen mappings. "Absolute error" is the distance to the uniform posterior over
consistent permutations, taken here over the V values. Our values come from evaluations (`compare`), never from these.
"""

from dataclasses import dataclass

import xarray as xr

from mnemoscope.analyses import ALL_SEQUENCES
from mnemoscope.core import mean_and_range

N_SAMPLES = 5000


@dataclass(frozen=True)
class Figure:
    """One published number: which preset, which quantity, on which subgroup, slot (none: mean over slots) and split."""

    preset: str
    quantity: str
    subgroup: str
    slot: int | None
    value: float
    split: str = "test"


def _table(preset: str, quantity: str, values: list[float], last: tuple[str, ...]) -> list[Figure]:
    """Slots 1 to 4 on all sequences, then the last slot on each of the subgroups `last`."""
    figures = [Figure(preset, quantity, ALL_SEQUENCES, slot, value) for slot, value in enumerate(values[:4], 1)]
    return figures + [Figure(preset, quantity, group, 5, value) for group, value in zip(last, values[4:], strict=True)]


def _losses(preset: str, value: float) -> list[Figure]:
    """The source gives one loss and rarely states on which mappings, so it is compared with both."""
    return [Figure(preset, "loss", ALL_SEQUENCES, None, value, split) for split in ("train", "test")]


_V1, _V3 = ("fresh",), ("fresh", "repeat")
FIGURES: tuple[Figure, ...] = (
    *_table("v1", "accuracy", [0.0956, 0.1640, 0.2456, 0.4226, 1.0], _V1),
    *_table("v1", "mean_abs_error", [0.012388, 0.015530, 0.018369, 0.015447, 0.000292], _V1),
    *_table("v1", "max_abs_error", [0.034079, 0.072218, 0.101983, 0.119183, 0.001334], _V1),
    *_losses("v1", 0.959),
    Figure("v1", "conflict_p_unused", "repeat", 1, 0.9991),
    *_table("v3", "accuracy", [0.1456, 0.1640, 0.2336, 0.4150, 1.0, 1.0], _V3),
    *_table("v3", "mean_abs_error", [0.014704, 0.020145, 0.021205, 0.020931, 0.000081, 0.000838], _V3),
    *_table("v3", "max_abs_error", [0.055206, 0.090151, 0.143933, 0.168254, 0.001548, 0.055650], _V3),
    *_losses("v3", 0.956),
    Figure("v3", "conflict_p_recalled", "repeat", 1, 0.9985),
    Figure("d16h1", "accuracy", "fresh", 5, 1.0),
    Figure("d16h1", "accuracy", "repeat", 5, 0.0001),
    *_losses("d16h1", 0.959),
)


def published(preset: str, quantity: str) -> dict[tuple[str, int | None], float]:
    """The published values of one quantity on unseen mappings, by subgroup and slot (none: mean over slots)."""
    rows = [
        figure for figure in FIGURES if (figure.preset, figure.quantity, figure.split) == (preset, quantity, "test")
    ]
    return {(figure.subgroup, figure.slot): figure.value for figure in rows}


def compare(preset: str, evaluation: xr.Dataset, conflict: xr.Dataset) -> xr.Dataset:
    """Every published figure of `preset` with ours, over seeds.

    The evaluation is `evaluate_splits` on `N_SAMPLES` samples of both splits, along `seed` as `conflict` is. The
    published probe is one sequence, ours the mean over the whole set. The result is along `row`; `difference` is
    mean - published, and slot 0 is the mean over slots.
    """
    rows = [figure for figure in FIGURES if figure.preset == preset]
    ours = [mean_and_range(_ours(figure, evaluation.sel(split=figure.split), conflict)) for figure in rows]
    columns = {name: [float(value.sel(summary=name)) for value in ours] for name in ("mean", "min", "max")}
    published = [figure.value for figure in rows]
    return xr.Dataset(
        {
            "published": ("row", published),
            **{name: ("row", values) for name, values in columns.items()},
            "difference": ("row", [mean - value for mean, value in zip(columns["mean"], published, strict=True)]),
        },
        coords={
            "quantity": ("row", [figure.quantity for figure in rows]),
            "subgroup": ("row", [figure.subgroup for figure in rows]),
            "slot": ("row", [figure.slot or 0 for figure in rows]),
            "split": ("row", [figure.split for figure in rows]),
        },
        attrs={"n_samples": N_SAMPLES, "n_seeds": evaluation.sizes["seed"]},
    )


def _ours(figure: Figure, evaluation: xr.Dataset, conflict: xr.Dataset) -> xr.DataArray:
    """Our value of a published figure, along `seed`."""
    if figure.quantity.startswith("conflict_"):
        return conflict[figure.quantity.removeprefix("conflict_")].sel(source_slot=figure.slot)
    values = evaluation[figure.quantity].sel(subgroup=figure.subgroup)
    if "reference" in values.dims:
        values = values.sel(reference="bayes")
    return values.mean("pos") if figure.slot is None else values.sel(pos=2 * (figure.slot - 1))
