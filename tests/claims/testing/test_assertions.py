"""Assertions outside a session of claims: true of models whose circuit is known, false where it is another one."""

import pytest

from mnemoscope.claims.testing import (
    assert_dissociated,
    assert_necessary,
    assert_not_necessary,
    assert_pattern,
    assert_sufficient,
    claim_effect,
    head,
    mlp,
)
from mnemoscope.claims.testing.cases import collect_effects
from mnemoscope.core.errors import InputError
from mnemoscope.core.patterns import identity, previous, same_slot
from mnemoscope.systems.tiny_recall.constructed import dissociated, shared_store
from tests.claims.testing.planted import N_VALUES, subject_of
from tests.support import EARLIER_Y, random_model

ELIMINATION, OTHER = head("elimination head"), head("other head")
N = 256


@pytest.fixture(scope="module")
def two_heads():
    """Head 0 eliminates; head 1 and the MLP recall."""
    return subject_of(dissociated(N_VALUES))


@pytest.fixture(scope="module")
def one_store():
    """Head 0 stores for both skills."""
    return subject_of(shared_store(N_VALUES))


def one_head():
    """An untrained model."""
    return subject_of(random_model(d_vocab=N_VALUES + 1, n_ctx=2 * N_VALUES - 1, n_heads=1))


def test_what_a_dissociated_model_needs(two_heads):
    on = {"subject": two_heads, "n": N}
    assert_necessary(ELIMINATION, for_="elimination", **on)
    assert_not_necessary(ELIMINATION, for_="recall", **on)
    assert_necessary(OTHER, for_="recall", **on)
    assert_necessary(mlp(), for_="recall", **on)
    assert_necessary([OTHER, mlp()], for_="recall", kind="zero", **on)
    assert_not_necessary([OTHER, mlp()], for_="elimination", **on)
    assert_sufficient(ELIMINATION, for_="elimination", **on)
    assert_sufficient([head("L0H1"), mlp()], for_="recall", **on)
    assert_dissociated("elimination", "recall", **on)
    assert_dissociated("recall", "elimination", **on)


def test_what_is_not_so_is_an_assertion_error_with_the_number(two_heads, one_store):
    on = {"subject": two_heads, "n": N}
    with pytest.raises(AssertionError, match=r"loses without elimination head \(L0H0\) is 0, not above 0.25"):
        assert_necessary(ELIMINATION, for_="recall", **on)
    with pytest.raises(AssertionError, match=r"without other head \(L0H1\) is .*, not below 0.25 accuracy"):
        assert_not_necessary(OTHER, for_="recall", **on)
    with pytest.raises(AssertionError, match=r"with elimination head .* alone is .*, not above 0.9"):
        assert_sufficient(ELIMINATION, for_="recall", **on)
    with pytest.raises(AssertionError, match="the double dissociation"):
        assert_dissociated("elimination", "recall", subject=one_store, n=N)


def test_roles_by_the_skill_that_a_name_begins_with(two_heads):
    on = {"subject": two_heads, "n": N}
    assert_necessary(head("recall head"), for_="recall", **on)
    assert_not_necessary(head("recall head"), for_="elimination", **on)
    assert_necessary(head("other head", by="recall"), for_="elimination", **on)
    assert_not_necessary(head("the head"), for_="elimination", at_most=0.999, subject=one_head(), n=N)


def test_where_a_head_attends(two_heads):
    assert_pattern(ELIMINATION, EARLIER_Y, at_least=0.99, subject=two_heads, n=N)
    with pytest.raises(AssertionError, match=r"share of attention of elimination head \(L0H0\) on earlier y"):
        assert_pattern(ELIMINATION, EARLIER_Y, at_least=0.9999999, subject=two_heads, n=N)
    with pytest.raises(AssertionError, match="on identity"):
        assert_pattern(ELIMINATION, identity(), subject=two_heads, n=N)
    with pytest.raises(AssertionError):
        assert_pattern(head("L0H0"), EARLIER_Y, at_least=0.9, subject=one_head(), n=N)


def test_the_queries_of_a_pattern(two_heads):
    # the elimination head looks at earlier y only: from the last x the token before is one of three
    assert_pattern(ELIMINATION, previous(), at_least=0.33, queries=[-1], subject=two_heads, n=N)
    with pytest.raises(AssertionError, match=r"is 0.333, not above 0.34"):
        assert_pattern(ELIMINATION, previous(), at_least=0.34, queries=[6], subject=two_heads, n=N)
    with pytest.raises(InputError, match=r"same slot says nothing about queries \[0, 2, 4, 6\]"):
        assert_pattern(ELIMINATION, same_slot(), subject=two_heads, n=N)
    with pytest.raises(InputError, match="a query must be from -7 to 6; got 7"):
        assert_pattern(ELIMINATION, EARLIER_Y, queries=[7], subject=two_heads, n=N)


def test_a_number_of_one_s_own():
    claim_effect(0.5, above=0.4)
    claim_effect(0.5, below=0.6)
    claim_effect(-0.05, within=0.1)
    with pytest.raises(AssertionError, match=r"the share of heads is 0.5, not above 0.5 shares"):
        claim_effect(0.5, above=0.5, unit="shares", what="the share of heads")
    with pytest.raises(AssertionError, match=r"not within ±0.1"):
        claim_effect(-0.2, within=0.1)
    with pytest.raises(InputError, match="one of above, below and within must be given; got none"):
        claim_effect(0.5)
    with pytest.raises(InputError, match="got above, below"):
        claim_effect(0.5, above=0.1, below=0.9)
    with pytest.raises(InputError, match="must be a finite number; got nan"):
        claim_effect(float("nan"), above=0)


def test_on_trial_nothing_is_raised_and_everything_is_kept(two_heads, one_store):
    with collect_effects(lambda: one_store) as effects:
        assert_dissociated("elimination", "recall", n=N)
        assert_dissociated("elimination", "recall", subject=two_heads, n=N)
        claim_effect(3, above=1, unit="nats")
    assert [effect.slack > 0 for effect in effects] == [False, True, True]
    assert effects[2].slack == 2
    with pytest.raises(AssertionError):  # the trial is over
        claim_effect(0, above=1)


def test_bad_input_is_refused_with_the_way_out(two_heads):
    on = {"subject": two_heads, "n": N}
    with pytest.raises(InputError, match=r"subject must be given outside a test marked with @pytest.mark.claim"):
        assert_necessary(OTHER, for_="recall")
    with pytest.raises(InputError, match="part of the model must be one of: elimination head, other head, L0 MLP; got"):
        assert_necessary(head("third head"), for_="recall", **on)
    with pytest.raises(InputError, match="a part of the model must be one of"):
        assert_necessary(mlp(3), for_="recall", **on)
    with pytest.raises(InputError, match="a skill must be one of: elimination, recall; got 'reading'"):
        assert_necessary(OTHER, for_="reading", **on)
    with pytest.raises(InputError, match="the skill by which other head is chosen must be one of: elimination, recall"):
        assert_necessary(head("other head", by="reading"), for_="recall", **on)
    with pytest.raises(InputError, match="parts must name at least one"):
        assert_necessary([], for_="recall", **on)
    with pytest.raises(InputError, match="is the whole model; name fewer parts"):
        assert_sufficient([ELIMINATION, OTHER, mlp()], for_="recall", **on)
    with pytest.raises(InputError, match="an attention pattern is that of a head; got L0 MLP"):
        assert_pattern(mlp(), EARLIER_Y, **on)
    with pytest.raises(InputError, match="got 'recall' twice"):
        assert_dissociated("recall", "recall", **on)
    with pytest.raises(InputError, match="needs two heads; the model has one"):
        assert_dissociated("elimination", "recall", subject=one_head(), n=N)
    with pytest.raises(InputError, match="other head is L0H1, which is named twice"):
        assert_necessary([head("L0H1"), OTHER], for_="recall", **on)
