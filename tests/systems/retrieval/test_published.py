"""The published figures beside planted results: two seeds of three steps, of which one has no circuit."""

import numpy as np
import xarray as xr

from mnemoscope.systems.retrieval.published import published_comparison

SEEDS = [0, 1]
PLACES = range(7)


def result(*, symbols: tuple[str, ...] = ("x1", "x2", "x3"), errors: tuple[float, float] = (0.009, 0.25), n_layers=3):
    """Symbols fall at steps 100, 200 and 300 in the first seed; in the second the last one never does."""
    loss = np.broadcast_to(np.array(errors)[None, None], (1, len(symbols), 2))
    coords = {"split": ["test"], "part": list(symbols), "seed": SEEDS}
    evaluation = xr.Dataset({"loss": (tuple(coords), loss)}, coords=coords)
    steps = np.array([0, 100, 200, 300])
    falls = {"x1": (100, 100), "x2": (200, 200), "x3": (300, 999)}
    metrics = xr.Dataset(
        {f"test_loss_{name}": (("seed", "step"), [[0.1 if s >= f else 1.0 for s in steps] for f in falls[name]])
         for name in symbols},
        coords={"seed": SEEDS, "step": steps},
    )  # fmt: skip
    rise = np.full((2, n_layers, 1, 7, 7, 1), np.nan)
    rise[0, 1, 0, 2, 1], rise[0, 2, 0, 0, 2], rise[0, 2, 0, 4, 3] = 0.06, 0.3, 0.2
    dims = ("seed", "layer", "head", "place", "to", "skill")
    labels = {"seed": SEEDS, "layer": range(n_layers), "head": [0], "place": PLACES, "to": PLACES, "skill": ["all"]}
    paths = xr.Dataset({"rise": (dims, rise)}, coords={k: list(v) for k, v in labels.items()}, attrs={"n_steps": 3})
    coords = {"seed": SEEDS, "skill": ["all"]}
    names = ("clean", "all heads replaced", "paths that are not needed dropped")
    circuit = xr.Dataset(
        {name: (("seed", "skill"), np.full((2, 1), 0.01 * i)) for i, name in enumerate(names, 1)}, coords=coords
    )
    return {"evaluation": evaluation, "metrics": metrics, "paths": paths, "circuit": circuit}


def rows(table):
    return {tuple(row[:2]): [str(cell) for cell in row[3:]] for row in table.rows}


def test_every_figure_is_compared_in_the_seeds_that_have_it():
    _, figures = published_comparison({"chains": result()})
    without = "error without a path"
    assert rows(figures) == {
        ("chains", "error at the end"): ["0.130 [0.009, 0.250]", "1 of 2"],
        ("chains", "least lead of a symbol over the next one, steps"): ["100.000", "1 of 1"],
        ("chains", "error with all attention replaced"): ["0.020", "1 of 1"],
        ("chains", f"{without} above the first layer with any, the least"): ["0.230", "1 of 1"],
        ("chains", f"{without} of the first layer with any, the largest"): ["0.090", "1 of 1"],
        ("chains", "heads with a path"): ["2.000", "0 of 1"],
    }


def test_of_the_last_symbol_alone_one_figure_was_published():
    _, figures = published_comparison({"last": result(symbols=("x3",), errors=(0.71, 0.69))})
    ((key, cells),) = rows(figures).items()
    assert key == ("last", "error of the last symbol, where nothing else is due")
    assert cells == ["0.700 [0.690, 0.710]", "1 of 2"]


def test_configurations_stand_in_the_order_of_their_layers():
    layers, _ = published_comparison({"deep": result(n_layers=4), "last": result(symbols=("x3",)), "flat": result()})
    assert [list(map(str, row[:4])) for row in layers.rows] == [
        ["last", "3", "last symbol", "3"],
        ["flat", "3", "whole chain", "3"],
        ["deep", "3", "whole chain", "4"],
    ]
    assert [str(cell) for cell in layers.rows[0][4:]] == ["–", "–", "0.130 [0.009, 0.250]"]


def test_without_any_circuit_nothing_is_said_of_paths():
    planted = result()
    planted["paths"] = planted["paths"].assign(rise=planted["paths"].rise.where(planted["paths"].seed > 1))
    _, figures = published_comparison({"chains": planted})
    assert [row[1] for row in figures.rows] == [
        "error at the end",
        "least lead of a symbol over the next one, steps",
    ]
