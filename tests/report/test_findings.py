"""Sentences on what analyses found: planted results give the right one."""

import numpy as np
import pytest
import xarray as xr

from mnemoscope.report import findings

SEEDS, SKILLS = [3, 4], ["copy", "count"]


def along(dims, shape, values, **coords):
    """An array along `seed` and more, zero but for `values` by place; the second seed has a tenth less."""
    array = xr.DataArray(np.zeros((2, *shape)), dims=("seed", *dims), coords={"seed": SEEDS, **coords})
    for place, value in values.items():
        array.loc[{"seed": SEEDS, **dict(zip(dims, place, strict=True))}] = [value, value - 0.1]
    return array


def ablated(values):
    coords = {"kind": ["zero", "mean"], "role": ["copy head", "MLP"], "skill": SKILLS}
    lost = along(("kind", "role", "skill"), (2, 2, 2), values, **coords)
    clean = xr.DataArray(np.ones((2, 2)), dims=("seed", "skill"), coords={"seed": SEEDS, "skill": SKILLS})
    return xr.Dataset({"accuracy": clean - lost, "clean_accuracy": clean})


def test_removal_names_the_part_that_each_skill_needs_most():
    found = ablated({("mean", "copy head", "copy"): 0.8, ("zero", "MLP", "copy"): 0.9, ("mean", "MLP", "count"): 0.5})
    assert findings.describe_removal(found) == (
        "By mean ablation copy needs the copy head most (0.75 [0.70, 0.80] accuracy lost); "
        "count needs the MLP most (0.45 [0.40, 0.50] accuracy lost)."
    )
    assert findings.describe_removal(ablated({("mean", "MLP", "count"): 0.5})).endswith(
        "No single part costs copy 0.01 or more."
    )


def test_the_only_head_has_one_article():
    found = ablated({("mean", "copy head", "copy"): 0.8}).assign_coords(role=["the head", "MLP"])
    assert findings.describe_removal(found).startswith("By mean ablation copy needs the head most (0.75")


def test_training_by_skill_or_by_loss():
    metrics = xr.Dataset(
        {name: along(("step",), (2,), {(9,): value}, step=[0, 9]) for name, value in METRICS.items()},
    )
    assert (
        findings.describe_final_accuracy(metrics)
        == "Accuracy on unseen sequences at the end of training: copy 0.85 [0.80, 0.90]."
    )
    losses = metrics[["test_loss"]]
    assert findings.describe_final_accuracy(losses) == (
        "At the end of training the loss on unseen sequences is 0.350 [0.300, 0.400]."
    )


METRICS = {"test_copy": 0.9, "test_loss": 0.4, "test_loss_copy": 0.3, "train_copy": 1.0}


def test_when_a_measure_has_risen_half_way():
    values = along(("step",), (4,), {(10,): 0.4, (20,): 0.7, (30,): 0.9}, step=[0, 10, 20, 30])
    values.loc[{"seed": 4, "step": 20}] = 0.1
    assert findings.describe_rise(values, "accuracy") == (
        "Accuracy goes from 0.00 [0.00, 0.00] to 0.85 [0.80, 0.90], half of the way by step 25 [20, 30]."
    )


@pytest.mark.parametrize(
    ("exponents", "said"),
    [
        (
            [1.1, 1.2, 1.3],
            "to the power of 1.20 [0.95, 1.45], mean over 3 draws with its 95 % interval, which holds the",
        ),
        (
            [1.2, np.nan, 1.21],
            "1.21 [1.14, 1.27], mean over 2 draws with its 95 % interval, which leaves out the expected 1.",
        ),
        ([1.2, np.nan], "too few draws have an exponent"),
    ],
)
def test_an_exponent_stands_beside_the_expected_one(exponents, said):
    found = findings.describe_growth("A", "the number of facts", "d", xr.DataArray(exponents, dims="draw"), expected=1)
    assert found.startswith("A: ")
    assert said in found
