"""A model whose second head has a pattern and no function."""

import pytest
import torch

from mnemoscope.analyses.attention import layer_attention
from mnemoscope.analyses.evaluation import accuracy_by_skill
from mnemoscope.models.subjects import Subject
from mnemoscope.systems.tiny_recall.constructed import local_binding, local_binding_circuit
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup


@pytest.mark.parametrize("n_values", [4, 5])
def test_attends_as_its_docstring_says(n_values):
    task = PermutationLookup(n_values=n_values, repeat_ratio=0.3).for_seed(0)
    batch = task.enumerate(split="test")
    _, number = local_binding_circuit(n_values).heads["binding"]
    attention = layer_attention(local_binding(n_values), 0, batch)[:, number]
    key = [0, *[2 * ((pos - 1) // 2) + 1 for pos in range(1, 2 * n_values - 1)]]  # x1, then y1 y1 y2 y2 ...
    expected = torch.zeros(len(key), len(key), dtype=torch.double)
    expected[torch.arange(len(key)), torch.tensor(key)] = 1
    torch.testing.assert_close(attention, expected.expand(len(batch), -1, -1))


def test_eliminates_and_never_recalls():
    task = PermutationLookup(repeat_ratio=0.3).for_seed(0)
    assert accuracy_by_skill(Subject(model=local_binding(), task=task, seed=0)) == {"elimination": 1.0, "recall": 0.0}
