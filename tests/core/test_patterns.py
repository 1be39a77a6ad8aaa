import pytest
import torch

from mnemoscope.core import patterns as p
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.patterns import checked_pattern, unspecified_queries
from tests.support import seeded, small_spec


def batch(*rows: list[int], **latents) -> Batch:
    tokens = torch.tensor(rows)
    return Batch(
        inputs=tokens,
        targets=tokens,
        scored=torch.ones_like(tokens, dtype=torch.bool),
        known={name: torch.tensor(value) for name, value in latents.items()},
    )


def attended(mechanism, of: Batch, row: int = 0) -> list[list[int]]:
    """The keys of every query; their weights must be even."""
    pattern = checked_pattern(mechanism, of)[row]
    keys = [(line > 0).nonzero()[:, 0].tolist() for line in pattern]
    for line, found in zip(pattern, keys, strict=True):
        assert not found or torch.allclose(line[found], torch.tensor(1 / len(found)))
    return keys


ANY = batch([3, 1, 3, 1, 1])


@pytest.mark.parametrize(
    ("mechanism", "keys"),
    [
        (p.uniform(), [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4]]),
        (p.identity(), [[0], [1], [2], [3], [4]]),
        (p.first(), [[0]] * 5),
        (p.previous(), [[], [0], [1], [2], [3]]),
        (p.previous(2), [[], [], [0], [1], [2]]),
        (p.fixed_key(2), [[], [], [2], [2], [2]]),
        (p.earlier(period=2, phase=1), [[], [], [1], [1], [1, 3]]),
        (p.earlier(period=2, phase=0), [[], [0], [0], [0, 2], [0, 2]]),
        (p.same_slot(), [[], [0], [], [2], []]),
        (p.same_slot(period=3), [[], [0], [0, 1], [], [3]]),
        (p.earlier_same(), [[], [], [0], [1], [1, 3]]),
        (p.earlier_same("first"), [[], [], [0], [1], [1]]),
        (p.earlier_same("last"), [[], [], [0], [1], [3]]),
        (p.earlier_same(period=2), [[], [], [0], [1], []]),
        (p.after_earlier_same(), [[], [], [1], [2], [2, 4]]),
        (p.after_earlier_same("first"), [[], [], [1], [2], [2]]),
        (p.after_earlier_same("last"), [[], [], [1], [2], [4]]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_keys(mechanism, keys):
    assert attended(mechanism, ANY) == keys


def test_a_latent_at_every_position():
    of = batch([1, 2, 3, 4], [1, 2, 3, 4], pair=[[0, 0, 1, 0], [5, 6, 7, 8]])
    assert attended(p.same_value("pair"), of) == [[], [0], [], [0, 1]]
    assert attended(p.same_value("pair"), of, 1) == [[], [], [], []]


def test_one_hot_at_a_latent():
    of = batch([1, 2, 3], [1, 2, 3], [1, 2, 3], source=[1, -1, 0], each=[[0, 0, 1], [-1, -1, 2], [-1, 0, -1]])
    assert [attended(p.one_hot("source"), of, row) for row in range(3)] == [
        [[], [1], [1]],
        [[], [], []],
        [[0], [0], [0]],
    ]
    assert attended(p.one_hot("source", query=-1), of) == [[], [], [1]]
    assert attended(p.one_hot("source", query=-1, shift=1), of) == [[], [], [2]]
    assert attended(p.one_hot("source", query=-1, shift=-1), of, 2) == [[], [], []]
    assert attended(p.one_hot("each"), of) == [[0], [0], [1]]
    assert attended(p.one_hot("each"), of, 1) == [[], [], [2]]


def test_the_repeated_x_of_permutation_lookup():
    of = small_spec("v3").task.monitor(50, split="test", generator=seeded())
    same, hot = (m.pattern(of)[:, -1] for m in (p.earlier_same(period=2), p.one_hot("source_pos", query=-1)))
    torch.testing.assert_close(same, hot, equal_nan=True)
    assert (unspecified_queries(p.earlier_same(period=2).pattern(of))[:, :-1]).all(), "no x but the last repeats"
    assert not unspecified_queries(p.earlier_same().pattern(of))[:, :-1].all(), "values stand for x and y"


def test_vectors_are_the_same_in_all_entries():
    of = batch([1, 2, 3], vector=[[[1, 2], [1, 3], [1, 2]]])
    with pytest.raises(InputError, match="for every position"):
        p.same_value("vector").pattern(batch([1, 2], vector=[3]))
    assert attended(p.same_value("vector"), of) == [[], [], [0]]


def test_fixed_weights_count_what_is_free():
    weights = torch.tensor([[1.0, 0, 0], [0.25, 0.75, 0], [0.5, 0.25, 0.25]])
    assert p.fixed("mine", weights).n_parameters == 3
    assert p.fixed("mine", weights, n_parameters=0).n_parameters == 0
    assert p.fixed("hot", torch.eye(3)).n_parameters == 0
    torch.testing.assert_close(checked_pattern(p.fixed("mine", weights), batch([1, 2, 3], [4, 5, 6]))[1], weights)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: p.previous(0), "offset must be at least 1"),
        (lambda: p.earlier(period=2, phase=2), "phase must be from 0 to 1"),
        (lambda: p.fixed_key(-1), "position must be at least 0"),
        (lambda: p.one_hot("source").pattern(ANY), "latent must be one of"),
        (lambda: p.one_hot("s").pattern(batch([1, 2], s=[2])), "positions below 2"),
        (lambda: p.one_hot("s").pattern(batch([1, 2], s=[0.5])), "whole numbers"),
        (lambda: p.one_hot("s", query=2).pattern(batch([1, 2], s=[0])), "query must be from -2 to 1"),
    ],
)
def test_wrong_input_is_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()


def test_lists_have_names_of_their_own():
    names = [mechanism.name for mechanism in p.slot_mechanisms(2)]
    assert len(set(names)) == len(names)
    assert p.slot_mechanisms(2)[: len(p.common_mechanisms())] == p.common_mechanisms()
    assert p.slot_mechanisms(1) == p.common_mechanisms(), "slots of one token have nothing else"
    three = [mechanism.name for mechanism in p.slot_mechanisms(3)]
    assert [name for name in three if name.startswith("earlier")] == [f"earlier at place {i} of 3" for i in (3, 2, 1)]


def test_a_mechanism_of_ones_own():
    every_other = p.attends_to("every other", lambda batch, query, key: (query - key) % 2 == 0)
    assert attended(every_other, ANY) == [[0], [1], [0, 2], [1, 3], [0, 2, 4]]
