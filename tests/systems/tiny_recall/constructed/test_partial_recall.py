import pytest

from mnemoscope.analyses.forward import log_probs
from mnemoscope.core import metrics
from mnemoscope.systems.tiny_recall.constructed import partial_recall
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup

TASK = PermutationLookup(n_values=4, repeat_ratio=0.3).for_seed(0)


@pytest.mark.parametrize("n_recalled", [0, 2, 4])
def test_which_tokens_are_recalled(n_recalled):
    batch = TASK.enumerate(split="all")
    logits = log_probs(partial_recall(4, n_recalled=n_recalled), TASK, batch)[:, -1]
    repeat, last = batch.latents["is_repeat"], batch.inputs[:, -1]
    right = metrics.is_correct(logits, batch.targets[:, -1])
    assert right[~repeat].all()
    assert [bool(right[repeat & (last == token)].any()) for token in range(1, 5)] == [
        token <= n_recalled for token in range(1, 5)
    ]
    assert float(right[repeat].double().mean()) == pytest.approx(n_recalled / 4)
    assert metrics.is_correct(logits, batch.latents["unused"])[repeat & (last > n_recalled)].all()
