"""The k-fold composition task: answers, latents and minimal pairs, followed hop by hop in plain Python."""

import math
from dataclasses import replace

import pytest
import torch

from mnemoscope import InputError, PromptPairs
from mnemoscope.systems.k_hop.tasks import KHop
from tests.support import seeded

SIZES = [{}, {"cyclic": False}, {"n_functions": 6, "n_symbols": 5, "hops": (3, 6)}]


def sample(n=40, **fields):
    task = KHop(**fields).for_seed(3)
    return task, task.sample(n, split="train", generator=seeded())


def by_hand(task, row, function, symbol, hops):
    """The places and symbols of the hops from one place in one sequence, one function after the other."""
    hidden, found = task.hidden().tolist(), []
    for hop in range(hops):
        following = (function + hop) % task.n_functions
        place = following * task.n_symbols + hidden[following][symbol]
        symbol = row[place]
        found.append((place, symbol))
    return found


@pytest.mark.parametrize("fields", SIZES, ids=str)
def test_every_place_is_answered_by_its_functions_in_turn(fields):
    task, batch = sample(**fields)
    latents = batch.latents
    for row, symbols in enumerate(batch.inputs.argmax(-1).tolist()):
        for pos in range(task.n_ctx):
            place = divmod(pos, task.n_symbols)
            assert tuple(int(latents[name][row, pos]) for name in ("function", "argument")) == place
            path = by_hand(task, symbols, *place, task.n_functions)
            steps = range(1, task.n_functions + 1)
            assert [(int(latents[f"at_{j}"][row, pos]), int(latents[f"after_{j}"][row, pos])) for j in steps] == path
            for hops, part in zip(task.hops, task.parts.values(), strict=True):
                due = batch.targets[row, pos, part]
                assert due.tolist() == [float(s == path[hops - 1][1]) for s in range(task.n_symbols)]
    assert batch.scored.sum(1).unique().tolist() == [task.n_ctx if task.cyclic else task.n_symbols]


def test_functions_are_permutations_and_hidden_ones_follow_the_seed():
    task, batch = sample()
    shown = batch.inputs.argmax(-1).unflatten(1, (4, 4))
    assert torch.equal(shown.sort(-1).values, torch.arange(4).expand_as(shown))
    assert torch.equal(task.hidden().sort(-1).values, torch.arange(4).expand(4, -1))
    assert torch.equal(task.hidden(), KHop(hidden_seed=3).for_seed(9).hidden())
    assert any(not torch.equal(task.hidden(), KHop().for_seed(seed).hidden()) for seed in (4, 5))
    with pytest.raises(InputError, match="hidden_seed is not set"):
        KHop().hidden()


def error(task, batch, name):
    """Squared error of a reference by number of hops."""
    found = (task.reference(batch, name) - batch.targets).square()
    return {part: float(found[..., where][batch.scored].mean()) for part, where in task.parts.items()}


@pytest.mark.parametrize("fields", [{}, {"cyclic": False}], ids=str)
@pytest.mark.parametrize(
    ("name", "known"), [("uniform", ()), ("one_hop", (1,)), ("all_but_longest", (1, 2)), ("answer", (1, 2, 4))]
)
def test_references_know_what_they_are_named_for_and_guess_the_rest(fields, name, known):
    task, batch = sample(**fields)
    found = error(task, batch, name)
    assert found == {f"hops_{h}": pytest.approx(0 if h in known else 3 / 16) for h in task.hops}
    assert torch.equal(task.reference(batch, name).isnan().any(-1), ~batch.scored)


def test_without_the_hidden_functions_only_the_shown_ones_are_composed():
    task, batch = sample()
    given = task.reference(batch, "shown_only")[..., task.parts["hops_4"]]
    for row, symbols in enumerate(batch.inputs.argmax(-1).tolist()):
        symbol = 2
        for function in range(4):
            symbol = symbols[4 * function + symbol]
        assert given[row, 2].tolist() == [float(s == symbol) for s in range(4)]


def test_exchanged_values_are_on_the_path_of_the_asker_or_beside_it():
    task, batch = sample(300)
    rows = torch.arange(300)
    for kind in task.corruptions:
        other = task.corrupt(batch, kind=kind, generator=seeded(1))
        asker = other.known["asker"]
        differ = (batch.inputs != other.inputs).any(-1)
        assert (differ.sum(1) == 2).all()
        on_path = kind == "exchange_on_path"
        assert task.pair_report(batch, other)["answer_changed"] == on_path
        reads = torch.stack([batch.latents[f"at_{j}"][rows, asker] for j in (1, 2, 3, 4)], 1)
        touched = differ.gather(1, reads)
        assert touched.any(1).all() == on_path
        assert touched.any() == on_path
        if on_path:
            hop = other.known["hop"]
            assert touched[rows, hop - 1].all()
            after = [(batch.latents[f"after_{j}"] == other.latents[f"after_{j}"])[rows, asker] for j in (1, 2, 3, 4)]
            assert torch.equal(torch.stack(after, 1), torch.arange(1, 5) < hop[:, None])


def test_pairs_are_read_at_the_asker():
    task, batch = sample(30)
    pairs = PromptPairs.from_task(task, batch, kind="exchange_elsewhere")
    at = torch.nn.functional.one_hot(pairs.corrupted.known["asker"], task.n_ctx).bool()
    read = pairs.read_at(at)
    longest = task.parts["hops_4"]
    assert torch.equal(read.answer[read.scored][:, longest], read.foil[read.scored][:, longest])


def test_only_places_of_the_first_function_ask_where_it_is_not_cyclic():
    task, batch = sample(200, cyclic=False)
    assert int(task.corrupt(batch, kind="exchange_on_path", generator=seeded()).known["asker"].max()) == 3


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"n_symbols": 3}, "task.n_symbols"),
        ({"hops": ()}, "ascending order"),
        ({"hops": (2, 1)}, "ascending order"),
        ({"hops": (1, 5)}, "task.hops"),
        ({"asked": ()}, "task.asked must name"),
        ({"asked": (3,)}, "task.asked must be one of"),
    ],
)
def test_what_cannot_be_asked_is_refused(fields, words):
    with pytest.raises(InputError, match=words):
        KHop(**fields)


def test_the_loss_is_of_what_is_asked():
    task, batch = sample()
    outputs = batch.targets.clone()
    outputs[..., task.parts["hops_4"]] = 1 / 4
    losses = [replace(task, asked=asked).loss(outputs, batch) for asked in (None, (4,), (1, 2))]
    assert [float(loss) for loss in losses] == pytest.approx([1 / 16, 3 / 16, 0])
    assert math.isclose(float(task.loss(batch.targets, batch)), 0)


def test_there_is_no_other_split_kind_or_reference():
    task, batch = sample(3)
    with pytest.raises(InputError, match="split must be one of"):
        task.sample(3, split="validation", generator=seeded())
    with pytest.raises(InputError, match="kind must be one of"):
        task.corrupt(batch, kind="rewire", generator=seeded())
    with pytest.raises(InputError, match="reference must be one of"):
        task.reference(batch, "two_hops")
    with pytest.raises(InputError, match="cannot be enumerated"):
        task.enumerate(split="test")
