"""What differs between specifications, and the words for it."""

from dataclasses import replace

import pytest

from mnemoscope.cli.parse import parse_changes
from mnemoscope.core.presets import MAX_VALUE_LENGTH, changed_fields, changes_text, differing_fields, preset, value_text
from mnemoscope.core.specification import Freeze

CHANGES = {"model.normalization": "none", "recipe.n_steps": 500, "task.repeat_ratio": 0.25}


def test_what_was_changed_is_read_from_the_run():
    spec = preset("v3", "quick", 7, changes=CHANGES)
    assert changed_fields(spec) == CHANGES
    assert changes_text(preset("v3", "quick", 7)) == ""


def test_the_words_make_the_same_run_again():
    spec = preset("v3", "quick", 7, changes=CHANGES)
    again = preset("v3", "quick", 7, changes=parse_changes(changes_text(spec).split(", ")))
    assert again.configuration == spec.configuration


def test_seeds_do_not_differ():
    assert differing_fields(preset("v3", "quick", 1), preset("v3", "quick", 2)) == {}


def test_a_field_differs_in_both_directions():
    one, other = preset("v3"), preset("v3", changes={"model.d_model": 64})
    assert differing_fields(one, other) == {"model.d_model": (32, 64)}
    assert differing_fields(other, one) == {"model.d_model": (64, 32)}


def test_of_unlike_tasks_the_fields_are_not_compared():
    found = differing_fields(preset("v3"), preset("birth-2-layers"))
    assert found["task"] == ("permutation-lookup", "in-context-bigrams")
    assert not any(name.startswith("task.") for name in found)


@pytest.mark.parametrize("change", [{"preset": "custom"}, {"preset": "gone+123456"}])
def test_of_what_came_from_no_known_preset_nothing_is_said(change):
    assert changed_fields(replace(preset("v3"), **change)) is None
    assert changes_text(replace(preset("v3"), **change)) == "?"


def test_a_recipe_that_the_preset_does_not_have_is_not_guessed():
    spec = preset("v3")
    assert changed_fields(replace(spec, recipe=replace(spec.recipe, name="own"))) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (0.001, "0.001"),
        ("none", "none"),
        ((10, 30), "[10, 30]"),
        ((Freeze(parameters="embed.*", stop=5),), "[{parameters: embed.*, stop: 5}]"),
    ],
)
def test_values_are_written_as_yaml(value, text):
    assert value_text(value) == text


def test_long_values_are_cut():
    text = value_text(tuple(range(1000)))
    assert text.startswith("[0, 1, 2, ")
    assert text.endswith("… (1000 values)")
    assert len(text) < MAX_VALUE_LENGTH + 16


def test_a_change_has_one_name_however_its_number_is_written():
    one, other = (preset("v3", "quick", changes={"recipe.weight_decay": value}).preset for value in (0, 0.0))
    assert one == other
    assert preset("v3", "quick", changes={"recipe.weight_decay": 0.5}).preset != one
