"""Sentences on what analyses found: planted results give the right one."""

import numpy as np
import pytest
import xarray as xr

from mnemoscope.viz import findings

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
    assert findings.removal(found) == (
        "By mean ablation copy needs the copy head most (0.75 [0.70, 0.80] accuracy lost); "
        "count needs the MLP most (0.45 [0.40, 0.50] accuracy lost)."
    )
    assert findings.removal(ablated({("mean", "MLP", "count"): 0.5})).endswith(
        "No single part costs copy 0.01 or more."
    )


def test_the_only_head_has_one_article():
    found = ablated({("mean", "copy head", "copy"): 0.8}).assign_coords(role=["the head", "MLP"])
    assert findings.removal(found).startswith("By mean ablation copy needs the head most (0.75")


def patched(values):
    coords = {"direction": ["noising", "denoising"], "metric": ["logit_diff"], "layer": [0, 1], "pos": [0, 1, 2]}
    return xr.Dataset({"ratio": along(("direction", "metric", "layer", "pos"), (2, 1, 2, 3), values, **coords)})


def test_patching_names_the_cell_that_costs_most():
    by_skill = {"copy": patched({("noising", "logit_diff", 1, 2): 0.9, ("denoising", "logit_diff", 0, 0): 1.0})}
    assert findings.carried(by_skill, what="resid_pre") == (
        "Patching resid_pre into the clean run costs most for copy at layer 1, pos 2 "
        "(0.85 [0.80, 0.90] of the difference is lost)."
    )
    assert (
        findings.carried({"copy": patched({})}, what="z")
        == "No single patch of z loses 0.01 of the difference or more."
    )
    nothing = {"copy": patched({}) * np.nan}
    assert findings.carried(nothing, what="z").startswith("No single patch")


def searched(faithfulness):
    coords = {"search": ["greedy", "top n"], "seed": SEEDS, "edge": list("abcd")}
    each = {
        "n_edges": (("seed", "search"), [[3, 2], [3, 2]]),
        "faithfulness": (("seed", "search"), [faithfulness, faithfulness]),
        "circuit": (("seed", "search", "edge"), np.zeros((2, 2, 4), dtype=bool)),
    }
    return xr.Dataset(each, coords=coords, attrs={"target": 0.9})


def test_circuits_that_are_as_faithful_as_asked_on_other_prompts():
    found = findings.circuits({"copy": searched([0.95, 0.5]), "count": searched([0.95, 0.92])})
    assert "for copy 3 [3, 3] of 4 edges (greedy; faithfulness 0.95" in found
    assert "for count 2 [2, 2] of 4 edges (top n; faithfulness 0.92" in found
    assert "for copy no search found one" in findings.circuits({"copy": searched([0.1, 0.5])})


def test_mechanisms_and_whether_they_hold_together():
    coords = {"seed": SEEDS, "role": ["copy head", "other head"]}
    best = (("seed", "role"), [["previous token", "none"], ["previous token", "none"]])
    heads = xr.Dataset({"best": best}, coords=coords, attrs={"tolerance": 0.05, "loss_unit": "nats"})
    joint = xr.Dataset({"holds": ("seed", [True, True]), "n_replaced": ("seed", [1, 0])}, coords={"seed": SEEDS})
    assert findings.mechanisms(heads, joint) == (
        "A mechanism stands in for the copy head in 2 of 2 seeds (most often by “previous token”); for the other head "
        "in 0 of 2 seeds. Explained heads replaced together keep the loss within 0.05 nats in 1 of 2 seeds."
    )


def test_neurons_that_keep_nearly_all():
    coords = {"skill": SKILLS, "part": ["kept", "removed"], "k": [0, 1, 2, 4], "metric": ["accuracy"]}
    values = {("copy", "kept", 1, "accuracy"): 0.5, ("copy", "kept", 2, "accuracy"): 0.99}
    fraction = along(("skill", "part", "k", "metric"), (2, 2, 4, 1), values, **coords)
    fraction.loc[{"skill": "count"}] = np.nan
    shares = xr.Dataset({"fraction": fraction, "neuron": ("rank", [3, 1, 0, 2])})
    assert findings.sparsity(shares).endswith("2 of 4 for copy; for count this could not be measured.")


def test_latents_that_are_read_beyond_every_control():
    coords = {"latent": ["token", "depth"], "against": ["shuffled", "untrained"], "site": ["L0", "L1"]}
    beyond = {("token", "shuffled", "L0"): 0.9, ("token", "shuffled", "L1"): 0.6, ("token", "untrained", "L1"): 0.5}
    dims = ("latent", "site")
    probes = xr.Dataset(
        {
            "selectivity": along(("latent", "against", "site"), (2, 2, 2), beyond, **coords),
            "score": along(dims, (2, 2), {("token", "L1"): 0.8}, latent=coords["latent"], site=coords["site"]),
            "chance": along(dims, (2, 2), {("token", "L1"): 0.3}, latent=coords["latent"], site=coords["site"]),
        }
    )
    assert findings.read(probes) == (
        "Read best beyond the controls: token from L1 (0.75 [0.70, 0.80], chance 0.25). "
        "Not read anywhere beyond the controls: depth."
    )


def test_the_largest_shapley_value():
    coords = {"kind": ["mean"], "role": ["copy head", "MLP"], "skill": ["copy"], "metric": ["accuracy"]}
    values = along(
        ("kind", "role", "skill", "metric"), (1, 2, 1, 1), {("mean", "MLP", "copy", "accuracy"): 0.6}, **coords
    )
    carried = values.sum("role") + 0.3
    found = findings.attributed(xr.Dataset({"value": values, "carried": carried}))
    assert found.endswith("copy: the MLP (0.55 [0.50, 0.60] of 0.85 [0.80, 0.90]).")


@pytest.mark.parametrize(("kept", "words"), [(0.95, "copy rank 4"), (0.5, "copy more than any rank tried")])
def test_the_rank_that_is_needed(kept, words):
    coords = {"weight": ["W_in"], "part": ["top"], "rank": [0, 4], "target": ["copy"]}
    probability = along(
        ("weight", "part", "rank", "target"), (1, 1, 2, 1), {("W_in", "top", 4, "copy"): kept}, **coords
    )
    clean = xr.DataArray([[1.0], [0.9]], dims=("seed", "target"), coords={"seed": SEEDS, "target": ["copy"]})
    full = xr.DataArray([[8], [8]], dims=("seed", "weight"), coords={"seed": SEEDS, "weight": ["W_in"]})
    found = findings.ranks(xr.Dataset({"probability": probability, "clean_probability": clean, "full_rank": full}))
    assert found == f"To keep 0.9 of the probability of its answer with W_in cut, of 8: {words}."


def test_the_part_of_attention_that_explains_most():
    coords = {"part": ["all", "token_token", "pos_pos", "uniform"], "role": ["copy head"]}
    shares = along(("part", "role"), (4, 1), {("all", "copy head"): 1.0, ("pos_pos", "copy head"): 0.7}, **coords)
    patterns = xr.Dataset({"share": shares, "r2": shares})
    assert findings.attention_scores(patterns).endswith(
        "copy head R² 0.95 [0.90, 1.00], most by pos × pos (0.65 [0.60, 0.70])."
    )


def test_training_by_skill_or_by_loss():
    metrics = xr.Dataset(
        {name: along(("step",), (2,), {(9,): value}, step=[0, 9]) for name, value in METRICS.items()},
    )
    assert findings.trained(metrics) == "Accuracy on unseen sequences at the end of training: copy 0.85 [0.80, 0.90]."
    losses = metrics[["test_loss"]]
    assert findings.trained(losses) == ("At the end of training the loss on unseen sequences is 0.350 [0.300, 0.400].")


METRICS = {"test_copy": 0.9, "test_loss": 0.4, "test_loss_copy": 0.3, "train_copy": 1.0}


def test_when_a_measure_has_risen_half_way():
    values = along(("step",), (4,), {(10,): 0.4, (20,): 0.7, (30,): 0.9}, step=[0, 10, 20, 30])
    values.loc[{"seed": 4, "step": 20}] = 0.1
    assert findings.rises(values, "accuracy") == (
        "Accuracy goes from 0.00 [0.00, 0.00] to 0.85 [0.80, 0.90], half of the way by step 25 [20, 30]."
    )


def test_a_position_is_called_by_its_name():
    ratio = xr.DataArray(
        np.array([[[[0.1, 0.9]]]]),
        dims=("seed", "direction", "metric", "pos"),
        coords={"seed": [3], "direction": ["noising"], "metric": ["logit_diff"], "pos": [7, 8]},
    ).assign_coords(pos_name=("pos", ["y4", "x5"]))
    said = findings.carried({"recall": ratio.to_dataset(name="ratio")}, what="z")
    assert "for recall at pos x5 (0.90" in said


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
    found = findings.grows("A", "the number of facts", "d", xr.DataArray(exponents, dims="draw"), expected=1)
    assert found.startswith("A: ")
    assert said in found
