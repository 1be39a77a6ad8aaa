import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.systems.in_context_bigrams.constructed import trigger_induction


@torch.no_grad()
def test_it_looks_after_its_triggers_only():
    model = trigger_induction(6, 8, triggers=(1, 4))
    tokens = torch.tensor([[3, 1, 5, 3, 4, 2, 1, 0]])
    logits, (_, cache) = model(tokens), model.run_with_cache(tokens)
    pattern = cache["blocks.1.attn.hook_pattern"][0, 0]
    expected = torch.zeros(8, 8)
    expected[0, 0] = 1
    expected[1, 1] = 1  # no trigger came before: evenly, position 0 excluded
    expected[2, 2] = expected[3, 2] = expected[4, 2] = 1  # the 5 after the only trigger, from a repeated 3 too
    expected[5, [2, 5]] = 0.5
    expected[6, 2] = 1  # what followed 1, and not what followed 4
    expected[7, [2, 5, 7]] = 1 / 3
    torch.testing.assert_close(pattern, expected, atol=1e-4, rtol=0)
    assert logits[0, 6].argmax() == 5
    assert logits[0, 6].softmax(-1)[5] > 0.99


def test_a_trigger_at_the_first_position_counts():
    model = trigger_induction(6, 4, triggers=(1,))
    _, cache = model.run_with_cache(torch.tensor([[1, 2, 1, 1]]))
    pattern = cache["blocks.1.attn.hook_pattern"][0, 0, 2:]
    torch.testing.assert_close(pattern, torch.tensor([[0, 1, 0, 0], [0, 0.5, 0, 0.5]]), atol=1e-4, rtol=0)


def test_unknown_triggers_are_refused():
    with pytest.raises(InputError, match="a trigger must be from 0 to 5; got 6"):
        trigger_induction(6, 8, triggers=(6,))
