"""The k-fold composition task: answers, latents and minimal pairs, followed hop by hop in plain Python."""

import math
from dataclasses import replace

import pytest
import torch

from mnemoscope import InputError, PromptPairs
from mnemoscope.systems.k_hop.tasks import KHop
from tests.support import seeded

SIZES = [{}, {"cyclic": True}, {"n_functions": 6, "n_symbols": 5, "hops": (3, 6), "n_queries": 1}]


def sample(n=40, **fields):
    task = KHop(**fields).for_seed(3)
    return task, task.sample(n, split="train", generator=seeded())


def by_hand(task, row, start, symbol, hops):
    """The symbols and places of a query's hops in one sequence, one function after the other."""
    hidden, found = task.hidden().tolist(), []
    for hop in range(hops):
        function = (start + hop) % task.n_functions
        place = function * task.n_symbols + hidden[function][symbol]
        symbol = row[place]
        found.append((place, symbol))
    return found


@pytest.mark.parametrize("fields", SIZES, ids=str)
def test_every_query_is_answered_by_its_functions_in_turn(fields):
    task, batch = sample(**fields)
    latents, starts = batch.latents, set()
    for row, tokens in enumerate(batch.inputs.tolist()):
        for pos in range(task.n_shown, task.n_ctx):
            hops, start, symbol = (int(latents[name][row, pos]) for name in ("hops", "start", "argument"))
            starts.add(start)
            assert tokens[pos] == int(task.query(*map(torch.tensor, (hops, start, symbol))))
            assert hops in task.hops
            path = by_hand(task, tokens, start, symbol, hops)
            assert int(batch.targets[row, pos]) == path[-1][1]
            rest = [(-1, -1)] * (task.n_functions - hops)
            steps = range(1, task.n_functions + 1)
            assert [(int(latents[f"at_{j}"][row, pos]), int(latents[f"after_{j}"][row, pos])) for j in steps] == (
                path + rest
            )
    assert starts == set(range(task.n_starts))


def test_a_place_counts_its_own_value_as_one_hop_and_goes_on_from_there():
    task, batch = sample()
    row, latents, hidden = batch.inputs[0].tolist(), batch.latents, task.hidden().tolist()
    place = 2 * 4 + 1
    following = row[3 * 4 + hidden[3][row[place]]]
    assert [int(latents[f"after_{j}"][0, place]) for j in (1, 2, 3, 4)] == [row[place], following, -1, -1]
    assert int(latents["at_1"][0, place]) == place
    assert [int(latents[name][0, place]) for name in ("hops", "start", "argument")] == [-1, -1, -1]
    around = replace(task, cyclic=True)
    again = around.sample(1, split="test", generator=seeded()).latents
    assert (again["after_4"][0, : task.n_shown] >= 0).all()


def test_functions_are_permutations_and_hidden_ones_follow_the_seed():
    task, batch = sample()
    shown = batch.inputs[:, :16].unflatten(1, (4, 4))
    assert torch.equal(shown.sort(-1).values, torch.arange(4).expand_as(shown))
    assert torch.equal(task.hidden().sort(-1).values, torch.arange(4).expand(4, -1))
    assert torch.equal(task.hidden(), KHop(hidden_seed=3).for_seed(9).hidden())
    assert any(not torch.equal(task.hidden(), KHop().for_seed(seed).hidden()) for seed in (4, 5))
    with pytest.raises(InputError, match="hidden_seed is not set"):
        KHop().hidden()


def test_hops_are_asked_for_equally_often_and_skills_tell_them_apart():
    task, batch = sample(3000)
    skills = task.skills(batch)
    assert set(skills) == {"hops_1", "hops_2", "hops_4"}
    for mask in skills.values():
        assert float(mask.sum() / 3000) == pytest.approx(1 / 3, abs=0.03)
    assert torch.stack(list(skills.values())).sum((0, 1)).tolist() == [0] * (task.n_ctx - 1) + [3000]


@pytest.mark.parametrize(("name", "answered"), [("uniform", ()), ("one_hop", (1,)), ("all_but_longest", (1, 2))])
def test_references_answer_what_they_are_named_for_and_guess_the_rest(name, answered):
    task, batch = sample()
    right = task.reference(batch, name).gather(-1, batch.targets[..., None])[..., 0]
    for hops in task.hops:
        values = right[batch.latents["hops"] == hops]
        assert torch.allclose(values, torch.tensor(1.0 if hops in answered else 0.25, dtype=torch.double))
    assert task.reference(batch, "answer")[batch.scored].gather(-1, batch.targets[batch.scored][:, None]).min() == 1


def test_without_the_hidden_functions_only_the_shown_ones_are_composed():
    task, batch = sample()
    given = task.reference(batch, "shown_only")
    for row in range(len(batch)):
        hops, symbol = int(batch.latents["hops"][row, -1]), int(batch.latents["argument"][row, -1])
        for function in range(hops):
            symbol = int(batch.inputs[row, 4 * function + symbol])
        assert given[row, -1, symbol] == 1


def test_exchanged_values_are_on_the_path_of_the_last_query_or_beside_it():
    task, batch = sample(300)
    for kind in task.corruptions:
        other = task.corrupt(batch, kind=kind, generator=seeded(1))
        differ = (batch.inputs != other.inputs).sum(1)
        assert set(differ.tolist()) == ({1} if kind == "other_argument" else {2})
        assert task.pair_report(batch, other)["answer_changed"] == (kind != "exchange_elsewhere")
        pairs = PromptPairs.from_task(task, batch, kind=kind, skill="hops_4")
        assert pairs.scored.nonzero()[:, 1].unique().tolist() == [task.n_ctx - 1]
        assert (pairs.answer == pairs.foil)[pairs.scored].all() == (kind == "exchange_elsewhere")
        reads = torch.stack([batch.latents[f"at_{j}"][:, -1] for j in (1, 2, 3, 4)], 1)
        touched = (batch.inputs != other.inputs).gather(1, reads.clamp(min=0)) & (reads >= 0)
        assert touched.any(1).all() == (kind == "exchange_on_path"), kind
        assert touched.any() == (kind == "exchange_on_path"), kind


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"n_symbols": 3}, "task.n_symbols"),
        ({"hops": ()}, "ascending order"),
        ({"hops": (2, 1)}, "ascending order"),
        ({"hops": (1, 5)}, "task.hops"),
        ({"n_queries": 0}, "task.n_queries"),
    ],
)
def test_what_cannot_be_asked_is_refused(fields, words):
    with pytest.raises(InputError, match=words):
        KHop(**fields)


def test_the_loss_of_guessing_a_symbol():
    task, batch = sample()
    guess = torch.full((*batch.inputs.shape, task.d_vocab), -math.inf)
    guess[..., :4] = 0
    assert float(task.loss(guess, batch)) == pytest.approx(math.log(4))
