"""Normalisations step by step, and softmax over scores."""

import pytest
import torch

from mnemoscope.engine.changes import Changes
from mnemoscope.engine.pointwise import Norm, softmax
from tests.support import seeded

_STEPS = ("hook_scale", "hook_normalized")


@pytest.mark.parametrize("kind", ["LN", "LNPre", "RMS", "RMSPre", None])
def test_a_normalisation_is_the_same_step_by_step_and_can_be_changed_there(kind):
    x, w, b = (torch.randn(*shape, generator=seeded(seed)) for seed, shape in enumerate(((3, 4, 8), (8,), (8,))))
    gain, bias = w if kind in ("LN", "RMS") else None, b if kind == "LN" else None
    norm, seen = Norm(kind=kind, eps=1e-5, w=gain, b=bias), {}
    by_steps = norm(x, Changes({name: lambda x, name=name: seen.update({name: x}) for name in _STEPS}))
    torch.testing.assert_close(by_steps, norm(x))
    if kind is not None:
        torch.testing.assert_close(seen["hook_scale"], norm.scale(x))
        halved = norm(x, Changes({"hook_scale": lambda scale: 2 * scale}))
        without = 0 if bias is None else bias
        torch.testing.assert_close(halved - without, (norm(x) - without) / 2)
    assert list(seen) == ([] if kind is None else list(_STEPS))


@pytest.mark.parametrize("n_keys", [1, 2, 9, 15, 16, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_softmax_is_that_of_torch_for_rows_of_any_length(n_keys, dtype):
    scores = 50 * torch.randn(3, 4, n_keys, dtype=dtype, generator=seeded())
    scores[0, 0, 1:] = -torch.inf
    torch.testing.assert_close(softmax(scores), scores.softmax(-1))
    assert softmax(torch.full((2, n_keys), -torch.inf)).isnan().all()
    scores.requires_grad_()
    weights = torch.randn(3, 4, n_keys, dtype=dtype, generator=seeded(1))
    (found,), (expected,) = (
        torch.autograd.grad((weights * of).sum(), scores) for of in (softmax(scores), scores.softmax(-1))
    )
    torch.testing.assert_close(found, expected)
