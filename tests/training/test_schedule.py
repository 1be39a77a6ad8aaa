import math

import pytest

from mnemoscope.core.errors import InputError
from mnemoscope.core.specification import Freeze, Recipe, TaskChange
from mnemoscope.models.building import matching_names
from mnemoscope.training.schedule import check_schedules, frozen_names, learning_rate, task_at
from tests.support import small_spec

NAMES = ["embed.W_E", "blocks.0.attn.W_Q", "blocks.0.attn.b_Q", "blocks.0.mlp.W_in", "blocks.1.attn.W_Q"]


def rates(steps, **fields) -> list[float]:
    recipe = Recipe(**{"n_steps": 12, "learning_rate": 0.01, **fields})
    return [learning_rate(recipe, step) for step in steps]


def test_the_rate_climbs_in_equal_steps():
    assert rates(range(6), warmup_steps=4) == pytest.approx([0.0025, 0.005, 0.0075, 0.01, 0.01, 0.01])


def test_the_rate_is_constant_without_schedule():
    assert rates(range(12)) == [0.01] * 12


def test_the_cosine_halves_at_half_time_and_ends_at_zero():
    eighth = 0.01 * (1 + math.sqrt(0.5)) / 2  # cos(pi / 4)
    assert rates([4, 6, 8, 12], warmup_steps=4, decay="cosine") == pytest.approx([0.01, eighth, 0.005, 0], abs=1e-12)
    assert rates([0, 6, 12], decay="cosine") == pytest.approx([0.01, 0.005, 0], abs=1e-12)


def test_linear_decay_falls_in_equal_steps_and_both_end_at_the_final_rate():
    assert rates([4, 6, 8, 12], warmup_steps=4, decay="linear") == pytest.approx([0.01, 0.0075, 0.005, 0])
    assert rates([0, 6, 12], decay="linear", final_rate=0.002) == pytest.approx([0.01, 0.006, 0.002])
    assert rates([0, 6, 12], decay="cosine", final_rate=0.002) == pytest.approx([0.01, 0.006, 0.002])


def test_warming_up_to_the_end_is_allowed():
    assert rates([0, 11], warmup_steps=12, decay="cosine") == pytest.approx([0.01 / 12, 0.01])


def test_freezing_lasts_from_start_to_before_stop():
    freeze = (Freeze(parameters="blocks.0.attn.*", start=2, stop=4), Freeze(parameters="*.W_in", start=3))
    held = [frozen_names(Recipe(frozen=freeze), NAMES, step) for step in range(6)]
    attention, mlp = {"blocks.0.attn.W_Q", "blocks.0.attn.b_Q"}, {"blocks.0.mlp.W_in"}
    assert held == [set(), set(), attention, attention | mlp, mlp, mlp]


def test_a_pattern_that_matches_nothing_is_refused_at_every_step():
    recipe = Recipe(frozen=(Freeze(parameters="blocks.7.*", start=100),))
    with pytest.raises(InputError, match=r"recipe.frozen: 'blocks.7.\*' matches no parameter; there are embed.W_E"):
        frozen_names(recipe, NAMES, 0)


def test_patterns_are_shell_style():
    assert matching_names(["*.attn.[Wb]_Q"], NAMES) == {NAMES[1], NAMES[2], NAMES[4]}
    assert matching_names([], NAMES) == set()


def test_a_task_changes_from_its_step_on_and_the_later_change_wins():
    task = small_spec().task
    recipe = Recipe(
        task_changes=(
            TaskChange(step=9, field="repeat_ratio", value=0.9),
            TaskChange(step=5, field="repeat_ratio", value=0.5),
            TaskChange(step=5, field="shuffle_x", value=False),
        )
    )
    seen = [task_at(task, recipe, step) for step in (0, 4, 5, 8, 9, 100)]
    assert [t.repeat_ratio for t in seen] == [0.3, 0.3, 0.5, 0.5, 0.9, 0.9]
    assert [t.shuffle_x for t in seen] == [True, True, False, False, False, False]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ((TaskChange(step=3, field="n_value", value=4),), "a key of task must be one of"),
        ((TaskChange(step=3, field="repeat_ratio", value=4),), "task.repeat_ratio must be from 0 to 1; got 4"),
        ((TaskChange(step=3, field="n_values", value=4),), "must keep the vocabulary, the length and the outputs"),
        (
            (TaskChange(step=3, field="n_values", value=4), TaskChange(step=9, field="n_values", value=5)),
            "must keep the vocabulary, the length and the outputs",
        ),
    ],
)
def test_schedules_that_cannot_work_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        check_schedules(small_spec(changes={"recipe.task_changes": changes}))


def test_schedules_that_work_are_not():
    changes = (TaskChange(step=3, field="copied_slots", value=(1, 2)),)
    check_schedules(
        small_spec(changes={"recipe.task_changes": changes, "recipe.frozen": (Freeze(parameters="unembed.*"),)})
    )
