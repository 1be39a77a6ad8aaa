"""Both causal models of the task, confirmed and refuted on circuits that are known."""

import pytest
import torch

from mnemoscope.analyses.alignment import align
from mnemoscope.analyses.interchange import random_pairs
from mnemoscope.analyses.stacking import concatenate
from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import Configuration
from mnemoscope.models.subjects import set_by_hand, untrained
from mnemoscope.systems.tiny_recall.analyses.causal_models import SPLIT, VALUES_AND_MATCH, compare
from mnemoscope.systems.tiny_recall.constructed import (
    dissociated,
    elimination_only,
    shared_store,
    store_and_match,
    two_layer_recall,
)
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import global_generators_untouched, random_model, reads_back

TASK = PermutationLookup(repeat_ratio=0.3)
A, B = SPLIT.name, VALUES_AND_MATCH.name


def compared(make, case=0):
    return compare(set_by_hand("it", make, TASK)(case)["it"], n=200, n_pairs=400, n_random=2)


@pytest.mark.parametrize("n_values", [4, 5])
def test_without_an_exchange_both_give_the_targets(n_values):
    task = PermutationLookup(n_values=n_values).for_seed(0)
    every = task.enumerate(split="test")
    for causal in (SPLIT, VALUES_AND_MATCH):
        assert causal.agreement(every, n_values + 1) == 1
        reference = task.reference(every, "bayes")[:, -1].double()
        torch.testing.assert_close(causal.answers(every, n_values + 1), reference)


def test_counterfactuals_by_hand():
    task = PermutationLookup()
    #                          repeats slot 2            fresh
    rows = ["1 2 2 3 3 4 4 5 2 3", "5 1 4 4 3 3 2 2 1 5", "2 5 1 4 5 3 3 2 5 3"]
    batch = [task.parse(row) for row in rows]
    repeat, fresh, third = batch  # third repeats slot 3

    def answer(causal, base, source, variable):
        return causal.interchanged(base, source, variable, 6).argmax(1).item()

    assert answer(SPLIT, repeat, fresh, "eliminated") == 3  # its own recalled y
    assert answer(VALUES_AND_MATCH, repeat, fresh, "values") == 4  # what the other has in slot 2
    for causal, variable in ((SPLIT, "eliminated"), (VALUES_AND_MATCH, "values")):
        assert answer(causal, fresh, repeat, variable) == 1  # what the other did not use
    assert answer(SPLIT, repeat, third, "recalled") == 3
    assert answer(SPLIT, fresh, third, "recalled") == 3  # what the other recalls
    assert answer(VALUES_AND_MATCH, repeat, third, "match") == 4  # its own slot 3
    assert answer(VALUES_AND_MATCH, fresh, third, "match") == 3
    for causal, variable in ((SPLIT, "recalled"), (VALUES_AND_MATCH, "match")):
        assert answer(causal, repeat, fresh, variable) == 1  # what it did not use itself


@pytest.mark.parametrize(
    ("make", "confirmed", "places"),
    [
        (dissociated, A, {"eliminated": "L0H0", "recalled": "L0H1 + L0 MLP"}),
        (two_layer_recall, A, {"eliminated": "L1H0", "recalled": "L1H1"}),
        (store_and_match, B, {"values": "L0H0", "match": "L0H1"}),
    ],
)
def test_a_circuit_confirms_one_and_refutes_the_other(make, confirmed, places):
    with global_generators_untouched():
        found = compared(make)
    other = {A: B, B: A}[confirmed]
    assert found.score.sel(causal=confirmed) == found.selection_score.sel(causal=confirmed) == 1
    assert found.score.sel(causal=other) < 0.6
    mine = found.sel(variable=found.causal_model == confirmed)
    assert dict(zip(mine["variable"].values, mine.place.values, strict=True)) == places
    assert (mine.iia == 1).all()
    assert (mine.other_iia.sel(over="changing") < 0.4).all()
    assert (mine.arbitrary_iia.sel(over="changing") == 0).all()
    assert (mine.random_iia.sel(over=["changing", "kept"]).min("over") < 0.95).all()


@pytest.mark.parametrize("make", [elimination_only, shared_store])
def test_neither_has_to_hold(make):
    """Without recall both fail; so they do where the match holds for the token that was found only."""
    assert (compared(make).score < 0.6).all()


def test_an_untrained_model_confirms_nothing():
    subject = untrained({"v3": Configuration(preset="v3")})(0)["v3"]
    found = compare(subject, n=200, n_pairs=400, n_random=2)
    assert (found.score < 0.3).all()
    assert found.attrs["follows"] < 0.4


@pytest.mark.full
def test_results_of_several_seeds_go_together(tmp_path):
    single = {case: compared(store_and_match, case) for case in (0, 1)}
    both = concatenate("seed", single)
    assert dict(both.score.sizes) == {"seed": 2, "causal": 2}
    assert not single[0].n.equals(single[1].n)
    assert both.sel(seed=1, drop=True).iia.equals(single[1].iia)
    assert reads_back(both, tmp_path / "result.nc")


def test_more_variables_than_heads_are_refused():
    batch = TASK.for_seed(0).enumerate(split="test").select(slice(0, None, 40))
    pairs = random_pairs(batch, 50)
    with pytest.raises(InputError, match="has 2 variables, and each gets a head of its own; the model has 1"):
        align(random_model(n_heads=1), SPLIT, selection=pairs, test=pairs)
