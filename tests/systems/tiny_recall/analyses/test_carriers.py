"""What heads carry, on circuits that are known."""

from dataclasses import replace

import numpy as np
import pytest

from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import Configuration
from mnemoscope.models.subjects import Subject, set_by_hand, untrained
from mnemoscope.systems.tiny_recall.analyses.carriers import divided, patching_recovery
from mnemoscope.systems.tiny_recall.constructed import (
    dissociated,
    elimination_only,
    shared_store,
    store_and_match,
    twin_elimination,
    two_layer_recall,
)
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import global_generators_untouched

TASK = PermutationLookup(repeat_ratio=0.3)


def on(make):
    return set_by_hand("it", make, TASK)(0)["it"]


@pytest.mark.parametrize("direction", ["noising", "denoising"])
def test_a_head_that_does_it_alone_and_two_that_share(direction):
    with global_generators_untouched():
        alone = patching_recovery(
            on(elimination_only), kind="exchange_answer", skills=("elimination",), direction=direction
        )
    assert alone == pytest.approx([1, 0], abs=1e-5)
    shared = patching_recovery(
        on(twin_elimination), kind="exchange_answer", skills=("elimination",), direction=direction
    )
    assert shared == pytest.approx([0.5, 0.5], abs=1e-4)


def test_the_store_carries_values_and_the_match_the_repeat():
    subject = on(store_and_match)
    values, seen, where = (
        patching_recovery(subject, kind=kind) for kind in ("exchange_answer", "toggle_repeat", "move_repeat")
    )
    assert values == pytest.approx([1, 0], abs=1e-4)
    assert seen == pytest.approx([0, 1], abs=1e-4)
    assert where == pytest.approx([0, 1], abs=1e-4)
    assert divided(values, seen) == divided(seen, values) == pytest.approx(0.5, abs=1e-4)


def test_the_mean_is_over_skills():
    subject = on(shared_store)
    apart = [patching_recovery(subject, kind="toggle_repeat", skills=(skill,)) for skill in ("elimination", "recall")]
    assert not np.allclose(*apart, atol=0.1)
    assert patching_recovery(subject, kind="toggle_repeat") == pytest.approx(np.mean(apart, axis=0))


def test_a_model_that_knows_nothing_carries_nothing():
    subject = untrained({"v3": Configuration(preset="v3")})(0)["v3"]
    assert patching_recovery(subject, kind="exchange_answer").tolist() == [0, 0]


def test_shares_are_of_layer_0_and_of_pairs_that_the_seed_draws():
    subject = Subject(model=dissociated(), task=TASK.for_seed(0), seed=3)
    shares = [
        patching_recovery(replace(subject, seed=seed), kind="exchange_answer", n=40).tolist() for seed in (3, 3, 4)
    ]
    assert shares[0] == shares[1] != shares[2]
    assert patching_recovery(on(two_layer_recall), kind="exchange_answer").shape == (2,)


def test_move_repeat_is_of_repeats_only():
    subject = on(store_and_match)
    assert patching_recovery(subject, kind="move_repeat") == pytest.approx(
        patching_recovery(subject, kind="move_repeat", skills=("recall",))
    )
    with pytest.raises(InputError, match="move_repeat needs sequences with a repeat"):
        patching_recovery(subject, kind="move_repeat", skills=("elimination",))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([0.9, 0.1], [0.2, 0.7], 0.2),  # min(.4, .4, .2, .3)
        ([0.2, 0.7], [0.9, 0.1], 0.2),
        ([0.9, 0.9], [0.2, 0.7], -0.4),
        ([0.5, 0.0], [0.0, 1.0], 0.0),
        ([1.0, 0.0, 0.0], [0.0, 0.0, 0.8], 0.3),  # a third head does neither
    ],
)
def test_divided_by_hand(first, second, expected):
    assert divided(np.array(first), np.array(second)) == pytest.approx(expected)


def test_wrong_input_is_refused():
    with pytest.raises(InputError, match="each of two heads or more"):
        divided(np.array([1.0]), np.array([1.0]))
    subject = on(elimination_only)
    with pytest.raises(InputError, match="a skill must be one of"):
        patching_recovery(subject, kind="exchange_answer", skills=("juggling",))
    with pytest.raises(InputError, match="kind must be one of"):
        patching_recovery(subject, kind="swap")
    with pytest.raises(InputError, match="n must be at least 1"):
        patching_recovery(subject, kind="exchange_answer", n=0)
