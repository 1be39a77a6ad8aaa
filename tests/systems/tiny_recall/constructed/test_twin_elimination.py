"""Two heads that share one skill equally."""

import pytest
import torch

from mnemoscope.systems.tiny_recall.constructed import elimination_only, twin_elimination, twin_elimination_circuit
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup


@pytest.mark.parametrize("n_values", [4, 5])
def test_the_function_is_that_of_one_head(n_values):
    batch = PermutationLookup(n_values=n_values, repeat_ratio=0.3).for_seed(0).enumerate(split="test")
    twins, alone = twin_elimination(n_values), elimination_only(n_values)
    torch.testing.assert_close(twins(batch.inputs), alone(batch.inputs), atol=1e-4, rtol=0)


def test_either_head_suffices():
    batch = PermutationLookup(split_seed=0).sample(64, split="test", generator=torch.Generator().manual_seed(0))
    for _, number in twin_elimination_circuit().heads.values():
        model = twin_elimination()
        with torch.no_grad():
            model.blocks[0].attn.W_O[number] = 0
        half = elimination_only(margin=5.0)
        torch.testing.assert_close(model(batch.inputs), half(batch.inputs), atol=1e-4, rtol=0)
