import math

import pytest
import torch

from mnemoscope.analyses.contrasts import selection
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError

BATCH = Batch(
    inputs=torch.zeros(2, 3, dtype=torch.long),
    targets=torch.zeros(2, 3, dtype=torch.long),
    scored=torch.tensor([[True, False, True], [True, False, False]]),
)
VALUES = torch.tensor([[1.0, 3], [5, math.inf]])  # of positions 0 and 2


def test_positions_that_are_nowhere_looked_at_are_left_out():
    chosen = selection(BATCH)
    assert chosen.columns.tolist() == [0, 2]
    assert (chosen.dims, chosen.coords, chosen.attrs) == (("prompt", "pos"), {"prompt": range(2), "pos": [0, 2]}, {})


def test_single_values_are_kept_and_nan_marks_the_others():
    parts = [(slice(0, 1), {"a": VALUES[:1]}), (slice(1, 2), {"a": VALUES[1:]})]
    kept = selection(BATCH).gather(parts)["a"]
    assert torch.equal(kept[0], VALUES[0])
    assert kept[1, 0] == 5
    assert kept[1, 1].isnan()


def test_means_ignore_what_is_not_looked_at():
    first = torch.tensor([[True, False, False], [True, False, False]])
    chosen = selection(BATCH, skills={"first": first, "scored": BATCH.scored, "no": ~(BATCH.scored | True)})
    parts = [(slice(0, 1), {"a": VALUES[:1, :, None]}), (slice(1, 2), {"a": VALUES[1:, :, None]})]
    means = chosen.gather(parts)["a"]
    assert means.shape == (3, 1)
    assert means[:2, 0].tolist() == [3, 3]
    assert means[2].isnan()
    assert (chosen.dims, chosen.coords) == (("skill",), {"skill": ["first", "scored", "no"]})


def test_positions_narrow_skills():
    last = torch.tensor([[False, False, True]] * 2)
    assert selection(BATCH, positions=last, skills={"scored": BATCH.scored}).positions.tolist() == [
        [False, False, True],
        [False, False, False],
    ]
    with pytest.raises(InputError, match="must select at least one position"):
        selection(BATCH, positions=~BATCH.scored, skills={"scored": BATCH.scored})
