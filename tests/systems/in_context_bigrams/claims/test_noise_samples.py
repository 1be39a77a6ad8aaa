"""N1: samples until the noise token is learned."""

import pytest

from mnemoscope.systems.in_context_bigrams.claims.noise_samples import CLAIM, long_contexts, measure
from tests.systems.on_trial import trouble, verdict


def test_controls_behave():
    assert trouble(CLAIM) is None


@pytest.mark.parametrize(
    ("feed_forward", "attention", "outcome"),
    [
        (0.0, 1.0, "SUPPORTED"),
        (0.2, 0.8, "SUPPORTED"),
        (-0.2, 0.7, "REFUTED"),
        (0.3, 1.0, "REFUTED"),
        (1.0, 1.0, "REFUTED"),
        (0.0, 0.0, "REFUTED"),
    ],
)
def test_both_parts_decide(feed_forward, attention, outcome):
    found = {"feed_forward": feed_forward, "attention": attention, "attention_large": 1.0}
    assert verdict(CLAIM, found).outcome == outcome


def test_a_draw_says_what_the_parts_ask():
    found = measure(100)
    assert {part.name for part in CLAIM.parts} <= set(found)
    assert found["feed_forward"] < 0.25 < 0.5 < found["attention"] < 1.25
    assert found["attention"] - 0.1 < found["attention_large"] < 1.5
    assert found == measure(100)


def test_attention_is_as_fast_where_contexts_hold_every_token():
    found = long_contexts(0)["draw"]
    assert found["attention"] < 0.5
    assert found["feed_forward"] < 0.25


def test_fresh_contexts_need_fewer_samples():
    assert measure(101, on="contexts")["attention"] < 0.25
