import pytest
import torch

from mnemoscope.analyses.attention import layer_attention
from mnemoscope.analyses.attention_replacement.replacement import has_control, permuted_targets
from mnemoscope.analyses.attention_replacement.search import learned_mean, learned_within
from mnemoscope.core.patterns import (
    checked_pattern,
    earlier_same,
    fixed,
    identity,
    one_hot,
    previous,
    slot_mechanisms,
    uniform,
    unspecified_queries,
    with_fallback,
)
from mnemoscope.systems.tiny_recall.constructed import elimination_only
from tests.support import EARLIER_Y, global_generators_untouched, random_model, seeded, small_spec

TASK = small_spec("v3").task
BATCH = TASK.monitor(200, split="test", generator=seeded())


@pytest.mark.parametrize("mechanism", slot_mechanisms(2), ids=lambda m: m.name)
def test_a_control_could_be_attention_and_says_something_where_the_mechanism_does(mechanism):
    pattern, other = checked_pattern(mechanism, BATCH), checked_pattern(permuted_targets(mechanism), BATCH)
    assert torch.equal(pattern.isnan(), other.isnan())


def test_where_targets_differ_the_sequence_gets_those_of_another_one():
    source = one_hot("source_pos", query=-1)
    pattern, other = source.pattern(BATCH)[:, -1], permuted_targets(source).pattern(BATCH)[:, -1]
    repeats = BATCH.latents["is_repeat"]
    assert ((pattern * other).sum(-1)[repeats] == 0).all(), "never the own target"
    assert set(other[repeats].argmax(-1).tolist()) == {0, 2, 4, 6}, "but one that another sequence has"


def test_of_two_kinds_each_gets_the_other():
    both = with_fallback(one_hot("source_pos", query=-1), identity())
    other = permuted_targets(both).pattern(BATCH)[:, -1]
    kinds = both.pattern(BATCH)[:, -1].argmax(-1)
    assert (other.argmax(-1) != kinds).all()


def test_one_target_for_all_is_moved_away():
    other = permuted_targets(previous()).pattern(BATCH)
    assert (other[:, 3, 2] == 0).all()
    assert set(other[:, 3].argmax(-1).tolist()) == {0, 1, 3}
    assert (other[:, 1].argmax(-1) == 1).all(), "the only other key"


def test_many_targets_are_permuted_with_their_weights():
    weights = torch.tensor([[1.0, 0, 0], [0.25, 0.75, 0], [0.5, 0.3, 0.2]]).tril()
    batch = TASK.from_tokens(BATCH.inputs[:, :3], BATCH.targets[:, :3])
    other = permuted_targets(fixed("mine", weights)).pattern(batch)
    torch.testing.assert_close(other.sort(-1)[0], weights.sort(-1)[0].expand_as(other))
    assert len(other[:, 2].unique(dim=0)) == 6


def test_even_attention_has_no_other_targets():
    torch.testing.assert_close(permuted_targets(uniform()).pattern(BATCH), uniform().pattern(BATCH))
    assert not has_control(uniform(), BATCH)
    for mechanism in (identity(), EARLIER_Y, earlier_same()):
        assert has_control(mechanism, BATCH)


def test_a_control_is_a_function_of_seed_and_batch():
    with global_generators_untouched():
        one, again = (permuted_targets(EARLIER_Y, seed=1).pattern(BATCH) for _ in range(2))
    assert torch.equal(one.nan_to_num(), again.nan_to_num())
    assert not torch.equal(one.nan_to_num(), permuted_targets(EARLIER_Y, seed=2).pattern(BATCH).nan_to_num())


FEW = TASK.monitor(30, split="test", generator=seeded())


def attention_of(model, head):
    return layer_attention(model, head[0], FEW)[:, head[1]]


def test_the_mean_and_its_free_numbers():
    attention = attention_of(random_model(), (0, 1))
    mechanism = learned_mean(attention)
    torch.testing.assert_close(checked_pattern(mechanism, FEW)[3], attention.mean(0))
    assert mechanism.n_parameters == 36


def test_the_mean_where_another_mechanism_says_nothing():
    attention = attention_of(random_model(), (0, 1))
    said = earlier_same().pattern(FEW)
    rows = checked_pattern(learned_mean(attention, unless=said), FEW)[0]
    quiet = unspecified_queries(said)[:, 8]
    assert 0 < quiet.sum() < len(quiet)
    torch.testing.assert_close(rows[8], attention[quiet, 8].mean(0))
    everywhere = learned_mean(attention, unless=identity().pattern(FEW))
    torch.testing.assert_close(checked_pattern(everywhere, FEW), uniform().pattern(FEW).double())
    assert everywhere.n_parameters == 0


def test_weights_on_the_keys_of_a_mechanism():
    attention = attention_of(elimination_only(), (0, 1))  # even over all keys
    mechanism = learned_within(attention, EARLIER_Y, FEW)
    torch.testing.assert_close(
        checked_pattern(mechanism, FEW), EARLIER_Y.pattern(FEW).double(), equal_nan=True, rtol=1e-5, atol=1e-6
    )
    assert mechanism.n_parameters == 1 + 1 + 2 + 2 + 3  # two, two, three, three and four y
    on_y = attention_of(elimination_only(), (0, 0))
    assert learned_within(on_y, EARLIER_Y, FEW) is not None


def test_no_weights_where_there_is_nothing_to_fit():
    attention = attention_of(random_model(), (0, 0))
    for mechanism in (identity(), uniform(), earlier_same()):  # one key, all keys, other keys in every sequence
        assert learned_within(attention, mechanism, FEW) is None
    on_itself = torch.eye(9, dtype=torch.double).expand(len(FEW), -1, -1)
    assert learned_within(on_itself, EARLIER_Y, FEW) is None
