import xarray as xr

from mnemoscope.records.circuits import finding
from tests.records.planted import along, measured


def test_the_part_of_attention_that_explains_most():
    coords = {"part": ["all", "token_token", "pos_pos", "uniform"], "role": ["copy head"]}
    shares = along(("part", "role"), (4, 1), {("all", "copy head"): 1.0, ("pos_pos", "copy head"): 0.7}, **coords)
    patterns = xr.Dataset({"share": shares, "r2": shares})
    assert finding(measured(patterns=patterns)).endswith(
        "copy head R² 0.95 [0.90, 1.00], most by pos × pos (0.65 [0.60, 0.70])."
    )
