from dataclasses import replace

import numpy as np
import pytest
import torch

from mnemoscope.analyses.attention_replacement.losses import loss_meter
from mnemoscope.analyses.attention_replacement.paths import Path, pattern_paths, redirect_path, remove_paths
from mnemoscope.core.patterns import after_earlier_same, checked_pattern, identity, previous, uniform, with_fallback
from mnemoscope.models.constructed import induction, induction_batch
from mnemoscope.systems.tiny_recall.constructed import elimination_only
from tests.support import EARLIER_Y, seeded, small_spec

TASK = small_spec("v3").task
BATCH = TASK.monitor(40, split="test", generator=seeded())
FRESH = BATCH.select(~BATCH.latents["is_repeat"])
ELIMINATION = {"elimination": TASK.skills(FRESH)["elimination"]}
ON_Y = with_fallback(EARLIER_Y, identity())


def taken_out(cells, mechanism, fallback):
    """The row of query 3 without some of its keys."""
    mask = torch.zeros(len(BATCH), 9, 9, dtype=torch.bool)
    mask[:, 3, cells] = True
    path = Path(head=(0, 0), name="mine", part=mechanism.name, cells=mask & (mechanism.pattern(BATCH) > 0))
    rows, other = (checked_pattern(each, BATCH).double() for each in (mechanism, fallback))
    changed = redirect_path(path, rows, other)
    return None if changed is None else changed[0, 3, :4].tolist()


def test_the_weight_goes_where_the_fallback_attends_off_the_path():
    assert taken_out([0, 1], uniform(), identity()) == [0, 0, 0.25, 0.75]
    assert taken_out([0, 1], uniform(), uniform()) == [0, 0, 0.5, 0.5]
    assert taken_out([2], previous(), identity()) == [0, 0, 0, 1]
    assert taken_out([2], previous(), uniform()) == pytest.approx([1 / 3, 1 / 3, 0, 1 / 3])
    assert taken_out([3], identity(), uniform()) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])


def test_a_fallback_that_has_nothing_off_the_path_takes_its_place_or_changes_nothing():
    assert taken_out([0, 1, 2, 3], uniform(), identity()) == [0, 0, 0, 1]
    assert taken_out([0, 1, 2, 3], uniform(), uniform()) is None
    assert taken_out([3], identity(), identity()) is None


def test_paths_are_the_rows_that_a_part_decides():
    first, second = pattern_paths(BATCH, {(0, 1): ON_Y}, "mechanism")
    assert (first.name, second.name) == ("L0H1 earlier y", "L0H1 identity")
    assert first.cells[0, 8].nonzero()[:, 0].tolist() == [1, 3, 5, 7]
    assert second.cells[0].nonzero().tolist() == [[0, 0], [1, 1]], "y 1 has no earlier y"
    names = [path.name for path in pattern_paths(BATCH, {(0, 0): ON_Y}, "query")]
    assert names[0] == "L0H0 earlier y, query x2"
    assert len(names) == 9
    names = [path.name for path in pattern_paths(BATCH, {(0, 0): ON_Y}, "cell")]
    assert "L0H0 earlier y, y1→x2" in names
    assert len(names) == 1 + 1 + 2 + 2 + 3 + 3 + 4 + 2


def test_only_the_attention_to_earlier_y_is_needed():
    result = remove_paths(loss_meter(elimination_only(), FRESH, ELIMINATION), {(0, 0): ON_Y, (0, 1): uniform()})
    assert result.needed.to_series().to_dict() == {
        "L0H0 earlier y": True,
        "L0H0 identity": False,
        "L0H1 uniform": False,
    }
    np.testing.assert_array_equal(result["rise"].isel(later=0), result["rise"].isel(later=1), "there is one layer")


def test_every_slot_of_the_elimination_head_is_needed():
    result = remove_paths(loss_meter(elimination_only(), FRESH, ELIMINATION), {(0, 0): ON_Y}, by="query")
    needed = [str(name) for name in result.path[result.needed].values]
    assert needed == [f"L0H0 earlier y, query x{slot}" for slot in (2, 3, 4, 5)], "y is not scored"
    last = result.sel(path="L0H0 earlier y, query x5", later="set", skill="elimination")
    assert last.loss.item() == pytest.approx(np.log(5), abs=1e-4), "x alone, on all alike, says nothing about y"
    assert last.fallback.item() == "uniform"


def repetition(n: int = 40):
    batch = induction_batch(n, n_tokens=12, n_ctx=12, generator=seeded())
    scored = batch.scored.clone()
    scored[:, -1] = False
    return replace(batch, scored=scored)


def test_a_path_that_only_later_attention_uses_is_needed_if_that_is_learned():
    assigned = {
        (0, 0): with_fallback(previous(), identity()),
        (1, 0): with_fallback(after_earlier_same(), identity()),
    }
    result = remove_paths(loss_meter(induction(12, 12), repetition(), None), assigned)
    costs = result.costs.sel(path="L0H0 previous token")
    assert costs.sel(later="learned").item()
    assert not costs.sel(later="set").item()
    assert result.needed.sel(path=["L0H0 previous token", "L1H0 after same token"]).all()
    assert not result.needed.sel(path="L1H0 identity").item()
    assert result.layer.values.tolist() == [0, 1, 1], "from position 0 there is nowhere else to go"


def test_there_may_be_no_path_to_take_out():
    at = loss_meter(elimination_only(), BATCH, None)
    assert remove_paths(at, {(0, 0): uniform()}, fallbacks=[uniform()]) is None
    assert remove_paths(at, {}) is None
