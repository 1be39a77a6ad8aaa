from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import xarray as xr

import mnemoscope as ms
from mnemoscope.records.neurons import MAX_SHOWN, OF_FEATURES, finding, memory_table, neuron_table, sequence_text
from mnemoscope.records.record import analyse, records, render_results
from tests.dictionaries import random_dictionary
from tests.records.planted import SKILLS, along, measured


def test_neurons_that_keep_nearly_all():
    coords = {"skill": SKILLS, "part": ["kept", "removed"], "k": [0, 1, 2, 4], "metric": ["accuracy"]}
    values = {("copy", "kept", 1, "accuracy"): 0.5, ("copy", "kept", 2, "accuracy"): 0.99}
    fraction = along(("skill", "part", "k", "metric"), (2, 2, 4, 1), values, **coords)
    fraction.loc[{"skill": "count"}] = np.nan
    shares = xr.Dataset({"fraction": fraction, "neuron": ("rank", [3, 1, 0, 2])})
    assert finding(measured(shares=shares)).endswith("2 of 4 for copy; for count this could not be measured.")


def test_what_is_listed_of_each():
    """Two features: the second is needed more; it is active on one sequence only, and raises no logit but one."""
    place = {"neuron": [0, 1], "skill": ["copy"]}
    listed = xr.Dataset(
        {
            "value": (("neuron", "token"), [[1.0, -3.0, 2.0], [-1.0, 2.0, -1.0]]),
            "promoted": (("neuron", "rank"), [[2, 0, 1], [1, 0, 2]]),
            "suppressed": (("neuron", "rank"), [[1, 0, 2], [0, 2, 1]]),
            "clean_log_prob": ("skill", [-0.1]),
            "log_prob": (("neuron", "skill"), [[-0.2], [-0.5]]),
            **{name: ("neuron", [name, name]) for name in ("role", "latent")},
            "explains": ("neuron", [0.5, 0.25]),
            "serves": (("neuron", "skill"), [[0], [1]]),
        },
        coords={**place, "seed": 3},
    )
    top = xr.Dataset(
        {
            "active": (("neuron", "rank"), [[True, True], [True, False]]),
            "activation": (("neuron", "rank"), [[2.0, 1.0], [0.5, np.nan]]),
            "inputs": (("neuron", "rank", "input_pos"), [[[0, 1, 2], [1, 1, 0]], [[2, 0, 1], [-1, -1, -1]]]),
            "pos": (("neuron", "rank"), [[2, 1], [0, -1]]),
        }
    )
    shown = partial(sequence_text, symbols="abc", causal=True)
    table = memory_table(listed, top, top=2, outputs="abc", shown=shown, units="features")
    assert table.header == ("feature", "raises", "lowers", "most active on", "second")
    assert table.rows == [
        ["1", "b (+2.00)", "a (-1.00), c (-1.00)", "c (0.50)", "–"],
        ["0", "c (+2.00), a (+1.00)", "b (-3.00)", "a b c (2.00)", "b b (1.00)"],
    ]
    agreement = xr.Dataset({"activation": (("neuron", "token"), np.zeros((2, 3)))}, coords={"token": range(3)})
    active = xr.Dataset({"active": ("neuron", [0.5, 0.5])})
    needed = neuron_table(listed, active, agreement, top=2, outputs="abc", units="features")
    assert (needed.header[0], needed.header[-1]) == ("feature", "cost of copy")
    assert "features of seed 3" in needed.title
    assert [row[-1] for row in needed.rows] == ["0.400", "0.100"]


def test_long_sequences_are_cut_and_texts_have_no_spaces():
    letters = "abcdefghijklmnop"
    assert sequence_text([0, 1, 2], 1, symbols=letters, causal=True) == "ab"
    assert sequence_text([0, 1, 2], 1, symbols=letters, causal=False) == "abc"
    assert sequence_text([1] * 60, 49, symbols=["x", "y"], causal=True) == "… " + " ".join("y" * MAX_SHOWN)


@pytest.mark.full
def test_features_are_called_features(learned):
    """A dictionary of the stream has no keys; every other result is there, and no text mentions neurons."""
    model = learned.hooked()
    sparse = random_dictionary(model, "resid_post", layer=0, activation="topk", k=4)
    run = replace(learned, prepare=lambda model, spec, step: ms.with_dictionaries(model, [sparse]), view="-features")
    found = analyse("neurons", [run], n=32, sampled=True, units="features", top=3)
    assert found.results["top"].sizes["neuron"] == sparse.n_features
    display = render_results(records()["neurons"], found)
    titles = [table.title for table in display.tables] + [name for table in display.tables for name in table.header]
    words = " ".join([display.finding, *titles, *(caption for caption, _ in display.figures)])
    assert "neuron" not in words.lower()
    assert "eatures that keep" in display.finding
    assert "features of seed" in display.figures[1][0]
    assert display.figures[1][0].endswith("write.")
    assert "read and" not in display.figures[1][0]
    assert OF_FEATURES in display.notes
