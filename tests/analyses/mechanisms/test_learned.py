import pytest
import torch

from mnemoscope.analyses.mechanisms.derived import attention_of, learned_mean, learned_within
from mnemoscope.core.errors import InputError
from mnemoscope.core.mechanism import checked_pattern, silent
from mnemoscope.core.patterns import earlier_same, earlier_y, identity, uniform
from mnemoscope.systems.tiny_recall.constructed import elimination_only
from tests.support import random_model, seeded, small_spec

TASK = small_spec("v3").task
BATCH = TASK.monitor(30, split="test", generator=seeded())


def test_the_attention_of_one_head():
    model = random_model(n_layers=2)
    _, cache = model.run_with_cache(BATCH.inputs)
    torch.testing.assert_close(attention_of(model, (1, 0), BATCH), cache["pattern", 1][:, 0].double())
    for head, words in (((2, 0), "layer must be from 0 to 1"), ((0, 2), "number of a head")):
        with pytest.raises(InputError, match=words):
            attention_of(model, head, BATCH)


def test_the_mean_and_its_free_numbers():
    attention = attention_of(random_model(), (0, 1), BATCH)
    mechanism = learned_mean(attention)
    torch.testing.assert_close(checked_pattern(mechanism, BATCH)[3], attention.mean(0))
    assert mechanism.n_parameters == 36


def test_the_mean_where_another_mechanism_says_nothing():
    attention = attention_of(random_model(), (0, 1), BATCH)
    said = earlier_same().pattern(BATCH)
    rows = checked_pattern(learned_mean(attention, unless=said), BATCH)[0]
    quiet = silent(said)[:, 8]
    assert 0 < quiet.sum() < len(quiet)
    torch.testing.assert_close(rows[8], attention[quiet, 8].mean(0))
    everywhere = learned_mean(attention, unless=identity().pattern(BATCH))
    torch.testing.assert_close(checked_pattern(everywhere, BATCH), uniform().pattern(BATCH).double())
    assert everywhere.n_parameters == 0


def test_weights_on_the_keys_of_a_mechanism():
    attention = attention_of(elimination_only(), (0, 1), BATCH)  # even over all keys
    mechanism = learned_within(attention, earlier_y(), BATCH)
    torch.testing.assert_close(
        checked_pattern(mechanism, BATCH), earlier_y().pattern(BATCH).double(), equal_nan=True, rtol=1e-5, atol=1e-6
    )
    assert mechanism.n_parameters == 1 + 1 + 2 + 2 + 3  # two, two, three, three and four y
    on_y = attention_of(elimination_only(), (0, 0), BATCH)
    assert learned_within(on_y, earlier_y(), BATCH) is not None


def test_no_weights_where_there_is_nothing_to_fit():
    attention = attention_of(random_model(), (0, 0), BATCH)
    for mechanism in (identity(), uniform(), earlier_same()):  # one key, all keys, other keys in every sequence
        assert learned_within(attention, mechanism, BATCH) is None
    on_itself = torch.eye(9, dtype=torch.double).expand(len(BATCH), -1, -1)
    assert learned_within(on_itself, earlier_y(), BATCH) is None
