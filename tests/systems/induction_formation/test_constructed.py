"""Models by hand: induction heads that share the work are exact, and the copier knows which two labels are shown."""

import math

import pytest
import torch

from mnemoscope.analyses import patterns
from mnemoscope.systems.induction_formation.constructed import copier, induction
from mnemoscope.systems.induction_formation.tasks import LABELS, QUERY, FewShot
from tests.support import seeded

TASKS = {"small": FewShot(n_classes=6, n_labels=3), "labels": FewShot(n_classes=12, n_labels=20)}


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("sizes", [{}, {"n_previous": 3, "n_induction": 4}, {"n_heads": 2}])
def test_induction_is_exact(name, sizes):
    task = TASKS[name].for_seed(0)
    batch = task.sample(300, split="test", generator=seeded())
    model = induction(task, **sizes)
    logits = model(batch.inputs)[:, QUERY]
    expected = 20 * torch.nn.functional.one_hot(batch.targets[:, QUERY], task.n_labels).float()
    torch.testing.assert_close(logits, expected, atol=1e-3, rtol=0)
    attention, rows = patterns(model, batch), torch.arange(300)
    for head in range(sizes.get("n_previous", 1)):
        for label in LABELS:
            assert (attention[:, 0, head, label, label - 1] > 0.999).all()
    for head in range(sizes.get("n_induction", 1)):
        assert (attention[rows, 1, head, QUERY, batch.latents["label_pos"]] > 0.999).all()


def test_the_copier_says_both_labels_alike():
    task = TASKS["small"].for_seed(0)
    batch = task.sample(300, split="test", generator=seeded())
    given = copier(task)(batch.inputs)[:, QUERY].softmax(-1).double()
    torch.testing.assert_close(given, task.reference(batch, "shown")[:, QUERY], atol=1e-4, rtol=0)
    assert task.loss(copier(task)(batch.inputs), batch).item() == pytest.approx(math.log(2), abs=1e-5)
