import pytest
import torch

from mnemoscope.analyses.mechanisms.derived import has_control, permuted_targets
from mnemoscope.core.mechanism import checked_pattern, otherwise
from mnemoscope.core.patterns import earlier_same, earlier_y, fixed, for_pairs, identity, one_hot, previous, uniform
from tests.support import global_generators_untouched, seeded, small_spec

TASK = small_spec("v3").task
BATCH = TASK.monitor(200, split="test", generator=seeded())


@pytest.mark.parametrize("mechanism", for_pairs(), ids=lambda m: m.name)
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
    both = otherwise(one_hot("source_pos", query=-1), identity())
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
    for mechanism in (identity(), earlier_y(), earlier_same()):
        assert has_control(mechanism, BATCH)


def test_a_control_is_a_function_of_seed_and_batch():
    with global_generators_untouched():
        one, again = (permuted_targets(earlier_y(), seed=1).pattern(BATCH) for _ in range(2))
    assert torch.equal(one.nan_to_num(), again.nan_to_num())
    assert not torch.equal(one.nan_to_num(), permuted_targets(earlier_y(), seed=2).pattern(BATCH).nan_to_num())
