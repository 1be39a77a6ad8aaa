import numpy as np
import xarray as xr

from mnemoscope.records.neurons import finding
from tests.records.planted import SKILLS, along, measured


def test_neurons_that_keep_nearly_all():
    coords = {"skill": SKILLS, "part": ["kept", "removed"], "k": [0, 1, 2, 4], "metric": ["accuracy"]}
    values = {("copy", "kept", 1, "accuracy"): 0.5, ("copy", "kept", 2, "accuracy"): 0.99}
    fraction = along(("skill", "part", "k", "metric"), (2, 2, 4, 1), values, **coords)
    fraction.loc[{"skill": "count"}] = np.nan
    shares = xr.Dataset({"fraction": fraction, "neuron": ("rank", [3, 1, 0, 2])})
    assert finding(measured(shares=shares)).endswith("2 of 4 for copy; for count this could not be measured.")
