"""Batched training and search against a loop that trains one problem at a time with torch's own Adam."""

import pytest
import torch
from torch.nn import functional as F

from mnemoscope import InputError
from mnemoscope.systems.memory_theory.associations import associations, candidates
from mnemoscope.systems.memory_theory.capacity import _CEILING, matrix_capacity, mlp_capacity, stored
from mnemoscope.systems.memory_theory.training import NEVER, Training, random_mlp, train_together, zero_matrix
from tests.support import global_generators_untouched

QUICK = Training(learning_rate=0.1, n_steps=200)
QUICK_MLP = Training(learning_rate=0.03, n_steps=200)
DRAWS = (1000, 1001, 1002)


def steps_in_a_loop(problem, start, training):
    """After how many steps one problem is stored."""
    weights = [weight.clone().requires_grad_() for weight in start]
    adam = torch.optim.Adam(weights, lr=training.learning_rate)
    for step in range(training.n_steps + 1):
        hidden = problem.inputs
        for weight in weights[:-1]:
            hidden = (hidden @ weight).relu()
        logits = hidden @ weights[-1] @ problem.outputs.T
        right = int((logits.argmax(1) == problem.answers).sum())
        if step > 0 and right >= problem.n_needed:
            return step
        adam.zero_grad()
        F.cross_entropy(logits, problem.answers).backward()
        adam.step()
    return NEVER


def capacity_in_a_loop(d, draw, start, training, *, parameters, n_outputs=None):
    """The largest candidate that is stored, by bisection, one at a time."""
    grid = candidates(_CEILING * parameters)
    problem = associations(_CEILING * parameters, d, draw=draw, n_outputs=n_outputs)
    low, high = -1, len(grid)
    while high - low > 1:
        middle = (low + high) // 2
        is_stored = steps_in_a_loop(problem.first(grid[middle]), start, training) != NEVER
        low, high = (middle, high) if is_stored else (low, middle)
    return grid[low]


@pytest.mark.full
def test_matrices_store_what_a_loop_finds():
    found = matrix_capacity((4, 6, 8), draws=DRAWS, training=QUICK)
    for d in (4, 6, 8):
        expected = [capacity_in_a_loop(d, draw, zero_matrix(d), QUICK, parameters=d**2) for draw in DRAWS]
        assert found.capacity.sel(d=d).values.tolist() == expected


@pytest.mark.parametrize("n_outputs", [None, 4])
def test_every_problem_is_stored_after_the_step_that_a_loop_finds(n_outputs):
    """Padding, the order of problems, and what leaves the batch change nothing; matrices and MLPs."""
    for start, training in ((zero_matrix(6), QUICK), (random_mlp(6, 9, draw=1000), QUICK_MLP)):
        whole = associations(40, 6, draw=1000, n_outputs=n_outputs)
        problems = [whole.first(n) for n in (20, 5, 8, 40, 2, 11)]
        found = train_together(problems, [start] * len(problems), training)
        assert found == [steps_in_a_loop(problem, start, training) for problem in problems]
        assert found[4] != NEVER
        assert found[3] == NEVER or n_outputs is not None


def test_training_leaves_starts_and_the_global_generator_alone():
    start, problem = zero_matrix(4), associations(3, 4, draw=0)
    with global_generators_untouched():
        train_together([problem], [start], QUICK)
        random_mlp(4, 4, draw=0)
    assert not start[0].any()


def test_orthonormal_vectors_are_stored_in_a_step_and_permuted_answers_by_another_matrix():
    """From zero the first step of Adam has the sign of the gradient; for the identity it takes some more."""
    problem = associations(16, 16, draw=0, orthonormal=True)
    assert stored([problem, problem.permuted(0)], [zero_matrix(16)] * 2, QUICK) == [True, True]


def test_more_vectors_than_can_be_told_apart_are_never_stored():
    """In one dimension all unit vectors are 1 and -1: of 4 inputs at most 2 can be right."""
    assert train_together([associations(4, 1, draw=0)], [zero_matrix(1)], QUICK) == [NEVER]


def test_capacity_is_labelled():
    found = mlp_capacity((4, 6), draws=(1000,), alpha=0.5, training=QUICK_MLP)
    assert found.capacity.dims == ("d", "draw")
    assert found.parameters.values.tolist() == [8, 18]
    assert (found.unit, found.n_steps) == ("associations", 200)


def test_associations_of_a_draw_are_nested():
    whole = associations(12, 4, draw=3)
    assert torch.equal(whole.first(5).first(3).inputs, whole.first(3).inputs)
    assert whole.first(3).answers.tolist() == [0, 1, 2]
    assert len(associations(12, 4, draw=3, n_outputs=7).first(3).outputs) == 7
    assert whole.inputs.norm(dim=1).tolist() == pytest.approx([1] * 12)


@pytest.mark.parametrize(("n", "needed"), [(2, 2), (99, 99), (100, 99), (101, 100), (200, 198)])
def test_99_percent_are_needed(n, needed):
    assert associations(n, 2, draw=0).n_needed == needed


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: associations(1, 4, draw=0),
        lambda: associations(5, 4, draw=0, orthonormal=True),
        lambda: associations(5, 4, draw=0).first(6),
        lambda: Training(learning_rate=0.0, n_steps=1),
        lambda: Training(learning_rate=0.1, n_steps=0),
        lambda: train_together([associations(5, 4, draw=0)], [], QUICK),
        lambda: matrix_capacity((1,), draws=(0,)),
        lambda: mlp_capacity((4,), draws=(0,), alpha=0.1),
        lambda: mlp_capacity((4,), draws=(0,), n_outputs=1),
    ],
)
def test_bad_input_is_refused(wrong):
    with pytest.raises(InputError):
        wrong()
