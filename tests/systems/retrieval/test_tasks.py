"""The data of the retrieval problem, followed by hand and by a loop over sequences."""

import math
from dataclasses import replace

import pytest
import torch

from mnemoscope import InputError
from mnemoscope.systems.retrieval.tasks import Retrieval
from tests.support import seeded

SIZES = [{}, {"n_chains": 2, "n_steps": 1}, {"n_steps": 5, "d_symbol": 6}, {"order": "backward"}]


def sample(n=20, **fields):
    task = Retrieval(**fields)
    return task, task.sample(n, split="train", generator=seeded())


def vectors_of(task, batch):
    return batch.inputs[..., : task.d_symbol]


def followed(task, vectors, query):
    """Positions of the places of a query's chain in one sequence, found by comparing vectors one by one."""
    positions, current = [query], vectors[query]
    for _ in range(task.n_steps):
        (first,) = [p for p in range(0, 2 * task.n_pairs, 2) if torch.equal(vectors[p], current)]
        positions += [first, first + 1]
        current = vectors[first + 1]
    return positions


@pytest.mark.parametrize("fields", SIZES, ids=str)
def test_every_query_leads_through_its_chain(fields):
    task, batch = sample(**fields)
    vectors = vectors_of(task, batch)
    for row in range(5):
        for query in range(2 * task.n_pairs, task.n_ctx):
            places = followed(task, vectors[row], query)
            assert [int(batch.latents[f"at_{i}"][row, query]) for i in range(2 * task.n_steps + 1)] == places
            due = torch.cat([vectors[row, places[2 * step]] for step in task.due])
            assert torch.equal(batch.targets[row, query], due)
            assert [int(batch.latents["place"][row, p]) for p in places] == list(range(len(places)))
            for place, position in enumerate(places):
                of_own = [int(batch.latents[f"at_{i}"][row, position]) for i in range(len(places))]
                assert of_own == places, place


def test_pairs_of_a_step_stand_together_and_are_shuffled_within_it():
    _, batch = sample(200)
    place = batch.latents["place"]
    steps = (place[:, :24] + 1) // 2
    assert steps.tolist() == [[1] * 8 + [2] * 8 + [3] * 8] * 200
    backward = Retrieval(order="backward").sample(3, split="test", generator=seeded())
    assert ((backward.latents["place"][:, :24] + 1) // 2).tolist() == [[3] * 8 + [2] * 8 + [1] * 8] * 3
    for start in (0, 8, 16, 24):
        first = batch.latents["chain"][:, start]
        assert set(first.tolist()) == ({0} if start == 24 else {0, 1, 2, 3}), "queries are numbered in their order"
    orders = batch.known["symbol"][:, 24:].unique(dim=0)
    assert len(orders) == math.factorial(4)


def test_symbols_are_standard_normal_and_new_in_every_sequence():
    _, batch = sample(4000)
    vectors = batch.inputs[:, 24:, :4].flatten()
    assert float(vectors.mean()) == pytest.approx(0, abs=0.02)
    assert float(vectors.std()) == pytest.approx(1, abs=0.02)


def test_codes_are_the_cosines_and_sines_of_the_number_of_the_pair():
    task, batch = sample(2)
    for position, number in ((0, 0), (1, 0), (2, 1), (23, 11), (24, 12), (27, 15)):
        angles = [number, number / 100]
        code = [*(math.cos(a) for a in angles), *(math.sin(a) for a in angles)]
        assert batch.inputs[0, position, 4:].tolist() == pytest.approx(code, abs=1e-5)
        assert int(batch.latents["pair"][0, position]) == number
    assert not Retrieval(query_codes="none").codes()[24:].any()
    assert torch.equal(Retrieval(query_codes="none").codes()[:24], task.codes()[:24])


def test_without_the_curriculum_the_last_symbol_alone_is_due():
    _, whole = sample()
    task, last = sample(whole_chain=False)
    assert torch.equal(whole.inputs, last.inputs)
    assert torch.equal(whole.targets[..., 8:], last.targets)
    assert dict(task.parts) == {"x3": slice(0, 4)}


def test_partial_losses_of_the_references():
    """Of 4 chains: 1 for the mean, 3/4 for who cannot tell the chains apart, 0 for what was reached."""
    task, batch = sample(8000)
    expected = {"mean": (1, 1, 1), "step": (0.75,) * 3, "first": (0, 0.75, 0.75), "all_but_last": (0, 0, 0.75)}
    for name, losses in {**expected, "chain": (0, 0, 0)}.items():
        error = (task.reference(batch, name) - batch.targets).square()[batch.scored].mean(0)
        assert [float(error[part].mean()) for part in task.parts.values()] == pytest.approx(losses, abs=0.02), name


def test_rewiring_changes_one_vector_and_one_answer_from_its_step_on():
    task, clean = sample(60)
    changed = task.corrupt(clean, kind="rewire", generator=seeded(1))
    assert ((clean.inputs != changed.inputs).any(-1).sum(1) == 1).all()
    differ = (clean.targets != changed.targets).unflatten(-1, (3, 4)).all(-1)[:, 24:]
    for row in range(60):
        step, query = (int(changed.known[name][row]) for name in ("corrupted_step", "corrupted_query"))
        expected = torch.zeros(4, 3, dtype=torch.bool)
        expected[query, step - 1 :] = True
        assert torch.equal(differ[row], expected)
        assert followed(task, vectors_of(task, changed)[row], 24 + query)[2 * step] == int(
            changed.latents[f"at_{2 * step}"][row, 24 + query]
        )


def test_exchanging_swaps_the_rest_of_two_chains():
    task, clean = sample(60)
    changed = task.corrupt(clean, kind="exchange", generator=seeded(1))
    assert ((clean.inputs != changed.inputs).any(-1).sum(1) == 2).all()
    for row in range(60):
        rest = slice(4 * (int(changed.known["corrupted_step"][row]) - 1), None)
        before, after = clean.targets[row, 24:], changed.targets[row, 24:]
        one = int(changed.known["corrupted_query"][row])
        (other,) = [q for q in range(4) if q != one and not torch.equal(before[q], after[q])]
        assert torch.equal(before[one, rest], after[other, rest])
        assert torch.equal(before[other, rest], after[one, rest])
        assert torch.equal(before[:, : rest.start], after[:, : rest.start])


def test_after_rewiring_a_symbol_that_no_query_leads_to_has_no_chain():
    task, clean = sample(60)
    changed = task.corrupt(clean, kind="rewire", generator=seeded(1))
    lost = changed.latents["chain"] < 0
    assert lost.any()
    for i in range(7):
        assert (changed.latents[f"at_{i}"][lost] < 0).all()
    assert not (clean.latents["chain"] < 0).any()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_chains": 1}, "task.n_chains"),
        ({"n_steps": 0}, "task.n_steps"),
        ({"d_symbol": 3}, "task.d_symbol must be even"),
    ],
)
def test_wrong_sizes_are_refused(fields, message):
    with pytest.raises(InputError, match=message):
        Retrieval(**fields)


def test_there_are_too_many_sequences_to_enumerate():
    with pytest.raises(InputError, match="cannot be enumerated"):
        Retrieval().enumerate(split="train")


def test_every_batch_is_a_value_of_its_own():
    _, batch = sample(4)
    picked = batch.select(torch.tensor([2, 0]))
    assert torch.equal(picked.latents["at_3"], batch.latents["at_3"][[2, 0]])
    assert picked.parts == batch.parts
    assert replace(batch).has_vectors
