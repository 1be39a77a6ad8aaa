"""The figures that the source reports for the retrieval problem, beside ours.

It trained 1 to 8 layers of 8 heads, 128 wide, for 10,000 steps (R2, R3, R4), and three models of 12 layers of one head,
A to C, for 24,000 (R5, R6, R9). Its models were read by hand, ours by rule (`chain_circuit`). A figure that was
published as a range or a bound is compared as such, seed by seed.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

import xarray as xr

from mnemoscope.report import Results, Table, mean_with_range

HALF = 0.5
"""Squared error below which a symbol counts as learned."""
PATH = ("layer", "head", "place", "to")

Row = tuple[str, str, Callable[[Results], xr.DataArray], Callable[[xr.DataArray], xr.DataArray]]
"""The quantity, the published value, ours over seed (NaN where it cannot be told), and whether that agrees."""


def published_comparison(results: Mapping[str, Results]) -> list[Table]:
    """Losses by number of layers, and every published figure that a configuration has a counterpart of."""
    return [_layer_table(results), *_comparison_tables(results)]


def _layer_table(results: Mapping[str, Results]) -> Table:
    """Squared error of every symbol, by steps of the chain, the form of the answer and layers."""
    symbols = list(dict.fromkeys(name for result in results.values() for name in _symbols(result)))
    rows = []
    for label, result in results.items():
        errors, rise = _errors(result), result["paths"].rise
        due = "whole chain" if _has_whole_chain(result) else "last symbol"
        cells = [
            mean_with_range(errors.sel(part=name), ".3f") if name in errors["part"].values else "–" for name in symbols
        ]
        rows.append([label, str(_n_steps(result)), due, str(rise.sizes["layer"]), *cells])
    rows.sort(key=lambda row: (row[1], row[2], int(row[3])))
    header = ["configuration", "D", "due", "layers", *symbols]
    title = "Squared error of every symbol by number of layers: mean [range] over seeds; .75 is left to a guess"
    return Table(name="by-layers", title=title, header=header, rows=rows, n_text=3)


def _comparison_tables(results: Mapping[str, Results]) -> Iterator[Table]:
    rows = []
    for label, result in results.items():
        for what, published, ours, agrees in _comparison_rows(result):
            values = ours(result)
            known = values.dropna("seed")
            if known.sizes["seed"]:
                share = f"{int(agrees(known).sum())} of {known.sizes['seed']}"
                rows.append([label, what, published, mean_with_range(values, ".3f"), share])
    if rows:
        header = ["configuration", "quantity", "published", "ours", "seeds as published"]
        title = "Beside the published figures: mean [range] over seeds; circuits of seeds that have one"
        yield Table(name="published", title=title, header=header, rows=rows, n_text=3)


def _comparison_rows(result: Results) -> tuple[Row, ...]:
    if not _has_whole_chain(result):
        return LAST_SYMBOL
    return WHOLE_CHAIN if _n_steps(result) > 1 else ()


def _n_steps(result: Results) -> int:
    return int(result["paths"].attrs["n_steps"])


def _symbols(result: Results) -> list[str]:
    return [str(part) for part in result["evaluation"]["part"].values if str(part).startswith("x")]


def _has_whole_chain(result: Results) -> bool:
    return len(_symbols(result)) == _n_steps(result)


def _errors(result: Results) -> xr.DataArray:
    """The errors on every symbol of unseen sequences, over (part, seed)."""
    return result["evaluation"].loss.sel(split="test", part=_symbols(result))


def _error(result: Results) -> xr.DataArray:
    return _errors(result).mean("part")


def _lead(result: Results) -> xr.DataArray:
    """The least number of steps by which a symbol falls below one half before the next; NaN where one never does."""
    losses = [result["metrics"][f"test_loss_{name}"] for name in _symbols(result)]
    falls = [loss.step.where(loss < HALF).min("step") for loss in losses]
    leads: list[xr.DataArray] = [later - earlier for earlier, later in pairwise(falls)]
    return xr.concat(leads, "lead").min("lead", skipna=False)


def _replacement_error(result: Results) -> xr.DataArray:
    return (
        result["circuit"]["all heads replaced"]
        .sel(skill="all", drop=True)
        .where(_path_rises(result).notnull().any(PATH))
    )


def _path_rises(result: Results) -> xr.DataArray:
    """The rise of the error without each path, over seed and `PATH`."""
    return result["paths"].rise.sel(skill="all", drop=True)


def _lowest_layer(result: Results) -> xr.DataArray:
    """The lowest layer that has a path, over seed; NaN without a path."""
    has = _path_rises(result).notnull().any(PATH[1:])
    return has.layer.where(has).min("layer")


def _error_without(result: Results, *, lowest: bool) -> xr.DataArray:
    """The error without each path of the lowest layer that has any, or of the layers above, over seed and `PATH`."""
    rises = _path_rises(result)
    here = rises.layer == _lowest_layer(result)
    dropped = result["circuit"]["paths that are not needed dropped"].sel(skill="all", drop=True)
    return (dropped + rises).where(here if lowest else ~here)


def _least_above(result: Results) -> xr.DataArray:
    return _error_without(result, lowest=False).min(PATH)


def _most_lowest(result: Results) -> xr.DataArray:
    return _error_without(result, lowest=True).max(PATH)


def _n_heads(result: Results) -> xr.DataArray:
    n = _path_rises(result).notnull().any(PATH[2:]).sum(PATH[:2])
    return n.where(n > 0)


LAST_SYMBOL: tuple[Row, ...] = (
    ("error of the last symbol, where nothing else is due", "above .7, 1 to 8 layers", _error, lambda x: x > 0.7),
)
WHOLE_CHAIN: tuple[Row, ...] = (
    ("error at the end", "below .01 (A to C)", _error, lambda x: x < 0.01),
    ("least lead of a symbol over the next one, steps", "above 0 in every run", _lead, lambda x: x > 0),
    ("error with all attention replaced", "below .05 (A to C)", _replacement_error, lambda x: x < 0.05),
    (
        "error without a path above the first layer with any, the least",
        ".17 to .89 (A to C)",
        _least_above,
        lambda x: (x >= 0.17) & (x <= 0.89),
    ),
    (
        "error without a path of the first layer with any, the largest",
        ".05 to .1 (A to C)",
        _most_lowest,
        lambda x: (x >= 0.05) & (x <= 0.1),
    ),
    ("heads with a path", "4 of 12 (A to C)", _n_heads, lambda x: x == 4),
)
"""Figures of the source for models that answer the whole chain; those of A to C are about three steps."""
