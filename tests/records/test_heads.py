import numpy as np
import pytest
import xarray as xr

from mnemoscope.records.heads import finding
from tests.records.planted import SEEDS, measured


def found(rises, *, holds=(True, True), n_replaced=(1, 0), copy_head="copy head"):
    """A copy head that is explained in both seeds; `rises` of the loss over (seed, skill) with it replaced."""
    coords = {"seed": SEEDS, "role": [copy_head, "other head"]}
    best = (("seed", "role"), [["previous token", "none"], ["previous token", "none"]])
    heads = xr.Dataset({"best": best}, coords=coords, attrs={"tolerance": 0.05, "loss_unit": "nats"})
    each = {
        "rise": (("seed", "skill"), np.array(rises)),
        "holds": ("seed", list(holds)),
        "n_replaced": ("seed", list(n_replaced)),
    }
    joint = xr.Dataset(each, coords={"seed": SEEDS, "skill": ["all", "copy"]})
    return finding(measured(heads=heads, joint=joint))


def test_mechanisms_and_whether_they_hold_together():
    assert found([[0.01, -0.04], [0.0, 0.0]]) == (
        "A mechanism stands in for the copy head in 2 of 2 seeds (most often by “previous token”); for the other head "
        "in 0 of 2 seeds. Explained heads replaced together keep the loss within 0.05 nats in 1 of 2 seeds."
    )


@pytest.mark.parametrize(
    ("rises", "holds", "said"),
    [
        ([[-0.02, -0.3], [0.0, 0.0]], (True, True), "in 1 of 2 seeds. In 1 it falls by more: the heads were not"),
        ([[-0.2, -0.3], [-0.1, 0.0]], (True, True), "in 0 of 2 seeds. In 2 it falls by more: the heads were not"),
        ([[0.02, -0.3], [0.2, 0.3]], (True, False), "in 0 of 2 seeds. In 1 it falls by more: the heads were not"),
        ([[-0.1, 0.3], [0.0, 0.0]], (False, True), "in 1 of 2 seeds."),  # one skill falls, and another one rises
    ],
)
def test_a_loss_that_falls_is_not_kept(rises, holds, said):
    sentence = found(rises, holds=holds, n_replaced=(1, 1)).split("keep the loss within 0.05 nats ")[1]
    assert sentence == (f"{said} helping." if "falls" in said else said)


def test_the_only_head_has_one_article():
    assert "stands in for the head in 2 of 2 seeds" in found([[0.0, 0.0], [0.0, 0.0]], copy_head="the head")
