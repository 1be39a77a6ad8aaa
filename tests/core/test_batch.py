import os

import pytest
import torch

from mnemoscope.core.batch import Batch


def batch(n: int = 4, **more) -> Batch:
    inputs = torch.arange(3 * n).view(n, 3)
    return Batch(inputs=inputs, targets=inputs + 1, scored=inputs % 2 == 0, **more)


@pytest.mark.parametrize("rows", [slice(1, 3), torch.tensor([3, 0, 0]), torch.tensor([True, False, False, True])])
def test_select_takes_the_same_rows_of_everything(rows):
    whole = batch(weights=torch.tensor([0.1, 0.2, 0.3, 0.4]), known={"slot": torch.tensor([5, 6, 7, 8])})
    part = whole.select(rows)
    for name in ("inputs", "targets", "scored", "weights"):
        assert torch.equal(getattr(part, name), getattr(whole, name)[rows])
    assert torch.equal(part.latents["slot"], whole.latents["slot"][rows])
    assert len(part) == len(whole.inputs[rows])


def test_latents_are_derived_from_the_selected_rows_and_only_once():
    calls = []
    whole = batch(derive=lambda b: calls.append(len(b)) or {"first": b.inputs[:, 0]})
    part = whole.select(slice(2, None))
    assert calls == []
    assert part.latents["first"].tolist() == [6, 9]
    assert part.latents["first"].tolist() == [6, 9]
    assert calls == [2]


def test_every_tensor_moves():
    moved = batch(weights=torch.ones(4)).to("meta")
    assert {getattr(moved, name).device.type for name in ("inputs", "targets", "scored", "weights")} == {"meta"}


@pytest.mark.skipif(not os.environ.get("TYPECHECK"), reason="shapes are checked where TYPECHECK is set")
def test_shapes_must_agree():
    with pytest.raises(TypeError):
        Batch(inputs=torch.zeros(2, 3).long(), targets=torch.zeros(2, 4).long(), scored=torch.zeros(2, 3).bool())
