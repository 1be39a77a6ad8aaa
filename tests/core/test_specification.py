import json
from dataclasses import replace

import pytest

from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import preset, recipes
from mnemoscope.core.specification import Freeze, ModelSpec, Recipe, RunSpec, TaskChange, from_plain, replace_fields
from tests.support import small_spec

RICH = {
    "recipe.frozen": (Freeze(parameters="blocks.0.*", start=3, stop=7), Freeze(parameters="embed.*")),
    "recipe.task_changes": (
        TaskChange(step=2, field="repeat_ratio", value=1),
        TaskChange(step=3, field="copied_slots", value=(1, 2)),
        TaskChange(step=4, field="shuffle_x", value=False),
        TaskChange(step=5, field="copied_slots", value=None),
    ),
    "task.copied_slots": (2, 4),
    "model.d_mlp": 7,
}


def test_a_specification_survives_json():
    spec = small_spec(seed=3, changes=RICH)
    again = RunSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
    assert again == spec
    assert hash(again) == hash(spec)
    assert [type(c.value) for c in again.recipe.task_changes] == [int, tuple, bool, type(None)]


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("task", "n_valus"), 5, "a key of task must be one of: n_values, train_fraction"),
        (("model", "width"), 5, "a key of model must be one of: d_model"),
        (("recipe", "n_steps"), "many", "recipe.n_steps: .* got 'many'"),
        (("recipe", "n_steps"), 0, "recipe.n_steps must be at least 1; got 0"),
        (("model", "normalization"), "RMS", "model.normalization: .*'LN' or 'none'; got 'RMS'"),
        (("task", "name"), "lookup", "task must be one of: .*permutation-lookup"),
        (("task", "repeat_ratio"), 2, "task.repeat_ratio must be from 0 to 1; got 2"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(place, value, message):
    data = small_spec().to_dict()
    data[place[0]][place[1]] = value
    with pytest.raises(InputError, match=message):
        RunSpec.from_dict(data)


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize("seed", ["0", 1.5, None])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(InputError, match="seed must be a whole number; got"):
        RunSpec.from_dict({**small_spec().to_dict(), "seed": seed})


@pytest.mark.parametrize("missing", ["preset", "seed", "task", "model", "recipe"])
def test_a_missing_part_is_named(missing):
    data = small_spec().to_dict()
    del data[missing]
    with pytest.raises(InputError, match=f"needs preset, seed, task, model and recipe.*{missing}"):
        RunSpec.from_dict(data)


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("cls", "field", "value", "message"),
    [
        (ModelSpec, "d_model", 0, "model.d_model must be at least 1"),
        (ModelSpec, "n_heads", 3, "model.n_heads must divide model.d_model = 32; got 3"),
        (ModelSpec, "d_mlp", 0, "model.d_mlp must be at least 1"),
        (ModelSpec, "normalization", "RMS", "one of: LN, none; got 'RMS'"),
        (ModelSpec, "act_fn", "tanh", "one of: relu, gelu, identity; got 'tanh'"),
        (ModelSpec, "dtype", "float16", "one of: float32, float64; got 'float16'"),
        (Recipe, "batch_size", 0, "recipe.batch_size must be at least 1"),
        (Recipe, "learning_rate", float("nan"), "recipe.learning_rate must be at least 0; got nan"),
        (Recipe, "weight_decay", -1.0, "recipe.weight_decay must be at least 0"),
        (Recipe, "warmup_steps", 3001, "recipe.warmup_steps must be from 0 to 3000; got 3001"),
        (Recipe, "beta2", 1.0, "recipe.beta2 must be from 0 to 1"),
        (Recipe, "decay", "step", "recipe.decay must be one of: constant, cosine, linear"),
        (Recipe, "final_rate", 0.1, "recipe.final_rate must be from 0 to 0.001; got 0.1"),
        (Recipe, "final_rate", 1e-4, "recipe.final_rate needs recipe.decay cosine or linear; got 0.0001 with constant"),
        (
            ModelSpec,
            "position_kind",
            "alibi",
            "model.position_kind must be one of: absolute, rotary, relative; got 'alibi'",
        ),
        (ModelSpec, "attention_mix", 1.5, "model.attention_mix must be from 0 to 1; got 1.5"),
        (Recipe, "clip_norm", 0.0, "recipe.clip_norm must be at least 1e-12; got 0"),
        (Recipe, "checkpoint_steps", (3001,), "recipe.checkpoint_steps must be from 0 to 3000"),
    ],
)
def test_a_part_that_cannot_be_cannot_be_built(cls, field, value, message):
    with pytest.raises(InputError, match=message):
        cls(**{field: value})


def test_checkpoints_are_log_spaced_and_keep_both_ends():
    assert Recipe(n_steps=2**15).checkpoints == (0, *(2**i for i in range(16)))
    assert Recipe(n_steps=1).checkpoints == (0, 1)
    assert Recipe(n_steps=50, checkpoint_steps=(7, 3, 7)).checkpoints == (0, 3, 7, 50)


def test_width_of_the_mlp_follows_the_model_unless_given():
    assert ModelSpec(d_model=8).mlp_width == 16
    assert ModelSpec(d_model=8, d_mlp=5).mlp_width == 5


def test_changes_apply_together_in_any_order():
    changes = {"recipe.n_steps": 50, "recipe.warmup_steps": 5, "model.d_model": 24, "model.n_heads": 3}
    spec = preset("v3", "quick", 0, changes=changes)
    assert (spec.recipe.n_steps, spec.recipe.warmup_steps, spec.model.d_model, spec.model.n_heads) == (50, 5, 24, 3)
    assert preset("v3", "quick", 0, changes=dict(reversed(changes.items()))) == spec


def test_changes_that_are_spelled_otherwise_are_the_same_run():
    """On the command line steps are a list; a rate is a whole number."""
    one = preset("v3", changes={"recipe.checkpoint_steps": (0, 9), "recipe.learning_rate": 1.0})
    assert preset("v3", changes={"recipe.checkpoint_steps": [0, 9], "recipe.learning_rate": 1}) == one


def test_a_changed_preset_carries_a_digest_of_the_changes():
    def label(seed: int, **changes) -> str:
        return preset("v1", "quick", seed, changes={f"model.{k}": v for k, v in changes.items()}).label

    assert label(0) == "v1-quick"
    assert label(0, d_model=8) == label(1, d_model=8)
    assert len({label(0), label(0, d_model=8), label(0, d_model=12)}) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task.V": 5}, "a key of task must be one of"),
        ({"optimizer.lr": 5}, "first word of a change must be one of: task, model, recipe; got 'optimizer'"),
        ({"d_model": 5}, "first word of a change"),
        ({"task.train_fraction": 1.0}, "at least one training and one test mapping; got 1.0"),
    ],
)
def test_a_change_that_names_nothing_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        preset("v1", "quick", 0, changes=changes)


def test_an_unknown_recipe_is_refused():
    with pytest.raises(InputError, match="recipe must be one of: quick, published; got 'slow'"):
        preset("v1", "slow", 0)


def test_recipes_of_all_presets_are_named_once():
    assert {"quick", "published", "sgd", "long"} <= set(recipes())
    assert len(set(recipes())) == len(recipes())


def test_replicates_differ_in_the_seed_only():
    following = [small_spec(seed=s) for s in (0, 1)]
    fixed = [small_spec(seed=s, changes={"task.split_seed": 0}) for s in (0, 1)]
    assert following[0].configuration == following[1].configuration
    assert following[0].replicates(following[1])
    assert fixed[0].replicates(fixed[1])
    assert fixed[1].replicates(fixed[0])
    assert not following[1].replicates(fixed[1])
    assert not following[0].replicates(small_spec(seed=1, changes={"model.d_model": 16}))


def test_change_checks_like_a_file():
    task = small_spec().task
    assert replace_fields(task, {"repeat_ratio": 0.5}, "task") == replace(task, repeat_ratio=0.5)
    with pytest.raises(InputError, match=r"task\.n_values: .* got 'five'"):
        replace_fields(task, {"n_values": "five"}, "task")
    assert from_plain(ModelSpec, {"d_model": 8}, "model") == ModelSpec(d_model=8)


def test_a_recipe_may_come_with_sizes_of_its_own_and_changes_win():
    spec, quick = preset("memories", "published", 0), preset("memories", "quick", 0)
    assert (spec.task.n_ctx, spec.model.d_model) == (256, 256)
    assert (quick.task.n_ctx, quick.model.d_model) == (128, 96)
    assert spec.label == "memories-published"
    assert preset("memories", "published", 0, changes={"model.d_model": 64}).model.d_model == 64


def test_associative_memories_need_one_head_and_no_normalisation():
    with pytest.raises(InputError, match=r"needs model\.n_heads 1 and model\.normalization none; got 1 and LN"):
        ModelSpec(n_heads=1, initialisation="memories")
