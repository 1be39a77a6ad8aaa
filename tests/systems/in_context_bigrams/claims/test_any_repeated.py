import pytest

from mnemoscope.claims.claim import GATE
from mnemoscope.core.errors import InputError
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import learned
from mnemoscope.systems.in_context_bigrams.claim_parts import FIXED_TRIGGERS, RANDOM_TRIGGERS, any_token
from mnemoscope.systems.in_context_bigrams.claims.any_repeated import (
    B12,
    FIXED,
    RANDOM,
    by_triggers,
    measure,
    triggers_only,
)
from tests.systems.on_trial import on, verdict
from tests.systems.planting import effects_of, misbehaving

TABLE = {"any": 0.9, "frequent": 0.9, "attends": 0.9, "not_fixed": 0.1, GATE: 1.0}


def ruled(**changes):
    return [verdict(claim, TABLE | changes).outcome for claim in (B12, *B12.rivals)]


def test_the_induction_circuit_continues_every_token():
    found = measure(on(any_token(), RANDOM_TRIGGERS))
    assert found == {"repeated": 1, "frequent": 1, "attention": pytest.approx(1), GATE: 1}


def test_a_circuit_of_triggers_has_learned_its_task_and_continues_no_other_token():
    subject = on(triggers_only(), FIXED_TRIGGERS)
    assert learned(subject) > 0.95
    found = measure(subject)
    assert found["repeated"] < 0.3
    assert found["attention"] < 0.3


def test_frequent_tokens_have_more_triggers_among_them():
    subject = on(triggers_only(), FIXED_TRIGGERS)
    assert measure(subject, tokens="frequent")["repeated"] > measure(subject)["repeated"]
    with pytest.raises(InputError, match="tokens must be one of"):
        measure(subject, tokens="rare")


def test_effects_by_hand():
    random = {"repeated": 0.8, "frequent": 0.9, "attention": 0.7, GATE: 0.95}
    fixed = {"repeated": 0.2, "frequent": 0.3, "attention": 0.3, GATE: 0.85}
    assert by_triggers({RANDOM: random, FIXED: fixed}) == {
        "any": 0.8,
        "frequent": 0.9,
        "attends": 0.7,
        "not_fixed": 0.2,
        "attends_fixed": 0.3,
        GATE: 0.85,
    }


def test_what_decides():
    assert ruled() == ["SUPPORTED", "REFUTED", "SUPPORTED"]
    assert ruled(not_fixed=0.9) == ["REFUTED", "REFUTED", "SUPPORTED"]
    assert ruled(attends=0.4) == ["REFUTED", "REFUTED", "SUPPORTED"]
    assert ruled(any=0.2, frequent=0.2) == ["REFUTED", "SUPPORTED", "REFUTED"]
    assert ruled(any=0.3) == ["REFUTED", "SUPPORTED", "SUPPORTED"]
    assert ruled(any=0.5, frequent=0.5) == ["INCONCLUSIVE", "INCONCLUSIVE", "INCONCLUSIVE"]
    assert ruled(**{GATE: 0.7}) == ["NOT_APPLICABLE"] * 3


def test_models_that_continue_everything_refute_it():
    everything = effects_of(B12, B12.controls[1].plant)
    assert [verdict(claim, everything).outcome for claim in (B12, *B12.rivals)] == ["REFUTED", "REFUTED", "SUPPORTED"]


@pytest.mark.parametrize("factors", [{}, {"tokens": "frequent"}, {"length": 20}])
def test_controls_behave(factors):
    assert misbehaving(B12, **factors) == {}
