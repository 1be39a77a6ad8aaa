import pytest
import torch

from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError


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


TOKENS, MASK = torch.zeros(2, 3).long(), torch.ones(2, 3).bool()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"inputs": torch.zeros(2, 3)}, "inputs of a batch must be tokens, whole numbers .* with .long"),
        ({"inputs": torch.zeros(2, 3).bool()}, "inputs of a batch must be tokens"),
        ({"targets": torch.zeros(2, 3)}, "targets of a batch must be tokens"),
        ({"targets": torch.zeros(2, 4).long()}, r"targets .* so begin with \(2, 3\); got \(2, 4\); take the same rows"),
        ({"scored": torch.ones(2, 4).bool()}, r"scored .* begin with \(2, 3\); got \(2, 4\)"),
        ({"scored": torch.ones(2, 3)}, "scored of a batch must be a mask of bool; got torch.float32"),
        ({"weights": torch.ones(3)}, r"weights .* begin with \(2,\); got \(3,\)"),
        ({"lengths": torch.tensor([3])}, r"lengths .* begin with \(2,\); got \(1,\)"),
        ({"known": {"slot": torch.ones(5)}}, r"latent slot .* begin with \(2,\); got \(5,\)"),
    ],
)
def test_tensors_that_do_not_fit_each_other_are_refused(fields, message):
    with pytest.raises(InputError, match=message):
        Batch(**{"inputs": TOKENS, "targets": TOKENS, "scored": MASK, **fields})


def test_a_batch_in_which_nothing_is_scored_can_be_refused():
    Batch(inputs=TOKENS, targets=TOKENS, scored=MASK).check_scored()
    with pytest.raises(InputError, match="scored of a batch must be True somewhere; none of the 6 places"):
        Batch(inputs=TOKENS, targets=TOKENS, scored=~MASK).check_scored()


def test_the_old_name_of_position_name_warns():
    with pytest.warns(FutureWarning, match="position_name"):
        assert batch().called(1) == "1"
