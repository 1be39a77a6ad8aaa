import pytest
import xarray as xr

from mnemoscope.systems.factual_recall.analyses import STORES
from mnemoscope.systems.factual_recall.report import stores_figure


def test_shares_of_facts_stand_side_by_side():
    def shares(first: float) -> xr.DataArray:
        values = [[first, 1 - first, 0, 0, 0], [first / 2, 1 - first / 2, 0, 0, 0]]
        return xr.DataArray(values, dims=("seed", "store"), coords={"seed": [3, 7], "store": list(STORES)})

    figure = stores_figure({"facts-narrow-quick": shares(0.4), "facts-wide-quick": shares(0.8)})
    bars = {bar.name: bar for bar in figure.select_traces("bar")}
    assert next(iter(bars)) == "attention alone"
    assert list(bars["attention alone"].y) == pytest.approx([0.3, 0.6])
    assert list(bars["the route through the MLP alone"].y) == pytest.approx([0.7, 0.4])
    assert all(left < right for left, right in zip(bars["attention alone"].x, (0, 1), strict=True))
    dots = next(iter(figure.select_traces({"name": "attention alone", "mode": "markers"})))
    assert list(dots.y) == pytest.approx([0.4, 0.2, 0.8, 0.4])
    assert list(figure.layout.xaxis.ticktext) == ["facts-<br>narrow-quick", "facts-<br>wide-quick"]
