import math
from dataclasses import replace

import pytest
import torch

from mnemoscope.core.batch import Batch
from mnemoscope.core.causal import CausalModel, most_probable
from mnemoscope.core.errors import InputError

TOKENS = torch.tensor([[1, 2, 0], [3, 1, 0], [2, 2, 0]])
SUMS = torch.tensor([3, 4, 4])
BATCH = Batch(
    inputs=TOKENS,
    targets=torch.stack((TOKENS[:, 1], TOKENS[:, 2], SUMS), 1),
    scored=torch.tensor([[False, False, True]]).expand(3, 3),
    known={"place": torch.tensor([2, 2, 1])},
)
ADD = CausalModel(
    name="add",
    variables={
        "first": lambda known: known["tokens"][:, 0],
        "second": lambda known: known["tokens"][:, 1],
        "sum": lambda known: known["first"] + known["second"],
    },
    answer=lambda known: known["sum"],
)
EVEN = replace(ADD, name="even", answer=lambda known: torch.tensor([[0.0, 0.5, 0.5]]).expand(len(known["sum"]), 3))
SOURCE = BATCH.select(torch.tensor([1, 2, 0]))


def tokens(answer):
    assert torch.equal(answer.sum(1), torch.ones(len(answer), dtype=torch.double))
    return answer.argmax(1).tolist()


def test_the_answer_follows_from_the_variables():
    assert ADD.values(BATCH)["sum"].tolist() == [3, 4, 4]
    assert tokens(ADD.answers(BATCH, 6)) == [3, 4, 4]
    assert ADD.agreement(BATCH, 6) == 1


def test_what_follows_from_a_variable_is_computed_anew_and_the_rest_stays():
    # first is 1 3 2 in the base and 3 2 1 in the source, second 2 1 2 and 1 2 2
    assert tokens(ADD.interchanged(BATCH, SOURCE, "first", 6)) == [3 + 2, 2 + 1, 1 + 2]
    assert tokens(ADD.interchanged(BATCH, SOURCE, "second", 6)) == [1 + 1, 3 + 2, 2 + 2]
    assert tokens(ADD.interchanged(BATCH, SOURCE, "sum", 6)) == [4, 4, 3]
    both = {"first": torch.ones(3, dtype=torch.long), "sum": torch.zeros(3, dtype=torch.long)}
    assert tokens(ADD.answers(BATCH, 6, both)) == [0, 0, 0]


def test_an_exchange_with_itself_changes_nothing():
    for name in ADD.variables:
        assert torch.equal(ADD.interchanged(BATCH, BATCH, name, 6), ADD.answers(BATCH, 6))


def test_a_variable_may_stand_for_a_latent():
    model = CausalModel(
        name="it",
        variables={"place": lambda known: 2 * known["place"], "next": lambda known: known["place"] + 1},
        answer=lambda known: known["next"],
    )
    assert tokens(model.answers(BATCH, 6)) == [5, 5, 3]


def test_several_answers_may_be_right():
    assert EVEN.answers(BATCH, 5).tolist() == [[0, 0.5, 0.5, 0, 0]] * 3
    assert most_probable(EVEN.answers(BATCH, 5)).tolist() == [[False, True, True, False, False]] * 3
    assert math.isnan(EVEN.agreement(BATCH, 6))  # no row has one answer


def test_agreement_counts_scored_rows():
    wrong = replace(BATCH, targets=torch.tensor([[0, 0, 3], [0, 0, 0], [0, 0, 0]]))
    assert ADD.agreement(wrong, 6) == pytest.approx(1 / 3)
    half = replace(wrong, scored=torch.tensor([[0, 0, 1], [0, 0, 1], [1, 0, 0]]).bool())
    assert ADD.agreement(half, 6) == 0.5


def test_the_answer_is_due_at_a_position_or_at_a_latent():
    values = torch.arange(9.0).view(3, 3)
    assert ADD.due(values, BATCH).tolist() == [2, 5, 8]
    assert replace(ADD, pos=0).due(values, BATCH).tolist() == [0, 3, 6]
    assert replace(ADD, pos="place").due(values, BATCH).tolist() == [2, 5, 7]
    assert replace(ADD, pos="place").due(values[..., None].expand(3, 3, 2), BATCH).shape == (3, 2)


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: replace(ADD, variables={}), "the causal model add needs at least one variable"),
        (
            lambda: replace(ADD, variables={"sum": ADD.variables["sum"], **ADD.variables}).values(BATCH),
            "variable sum of add reads 'first', which comes neither with the batch nor before it; .* tokens, place",
        ),
        (
            lambda: replace(ADD, answer=lambda known: known["third"]).answers(BATCH, 6),
            "the answer of add reads 'third'",
        ),
        (lambda: ADD.values(BATCH.select(slice(0))), "the number of sequences of a batch must be at least 1; got 0"),
        (lambda: ADD.values(BATCH, {"third": SUMS}), "a variable that is set must be one of: first, second, sum"),
        (lambda: ADD.values(BATCH, {"sum": SUMS[:2]}), r"variable sum .* each of the 3 sequences; got \(2,\)"),
        (
            lambda: replace(ADD, variables={"sum": lambda known: 1}).values(BATCH),
            "variable sum of add must be a tensor .* got int",
        ),
        (lambda: ADD.interchanged(BATCH, SOURCE, "third", 6), "variable must be one of: first, second, sum"),
        (lambda: ADD.interchanged(BATCH, SOURCE.select(slice(2)), "sum", 6), "must have as many rows; got 3 and 2"),
        (lambda: ADD.answers(BATCH, 4), "a token that add answers must be from 0 to 3; got 4"),
        (lambda: EVEN.answers(BATCH, 2), r"probabilities, shape \(3, at most 2\); got shape \(3, 3\)"),
        (
            lambda: replace(ADD, answer=lambda known: SUMS.double()).answers(BATCH, 6),
            "must be tokens, .* torch.float64",
        ),
        (lambda: replace(EVEN, answer=lambda known: torch.ones(3, 2)).answers(BATCH, 6), "must add up to 1"),
        (lambda: replace(EVEN, answer=lambda known: torch.full((3, 2), math.nan)).answers(BATCH, 6), "or NaN"),
        (lambda: replace(ADD, pos=3).agreement(BATCH, 6), "the position of the answer of add must be from -3 to 2"),
        (lambda: replace(ADD, pos="where").agreement(BATCH, 6), "the latent that gives the position .* got 'where'"),
    ],
)
def test_what_is_no_causal_model_of_the_batch_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.usefixtures("as_installed")
def test_a_function_cannot_change_what_it_reads():
    def spoil(known):
        known["first"] = known["second"]

    with pytest.raises(TypeError):
        replace(ADD, answer=spoil).answers(BATCH, 6)
