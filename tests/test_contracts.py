"""What every registered task and every preset keeps to, whatever it is about."""

import dataclasses
import json
import math

import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.core.positions import position_names
from mnemoscope.core.presets import PRESETS, preset
from mnemoscope.core.protocols import Task, VectorTask, n_outputs
from mnemoscope.core.specification import TASKS, RunSpec
from mnemoscope.models.building import build_untrained, detached_parameters, matching_names, zero_patterns
from mnemoscope.training.schedule import check_schedules
from tests.support import global_generators_untouched, logits_of, seeded

RECIPES = [(name, recipe) for name in PRESETS.names() for recipe in PRESETS.get(name).recipes]
SPLITS = ("train", "test")


TRAINED_ON = {PRESETS.get(name).task.for_seed(0): name for name in reversed(PRESETS.names())}  # first preset of each


def each(tasks):
    return pytest.mark.parametrize("task", tasks, ids=[f"{t.name}-{name}" for t, name in tasks.items()])


each_task = each(TRAINED_ON)
OF_VECTORS = {task: name for task, name in TRAINED_ON.items() if isinstance(task, VectorTask)}
each_vector_task = each(OF_VECTORS)
each_token_task = each({task: name for task, name in TRAINED_ON.items() if task not in OF_VECTORS})
each_preset = pytest.mark.parametrize("name", PRESETS.names())


# ---- tasks


def groups_of(task, batch) -> dict[str, torch.Tensor]:
    """The subgroups; of a task that has none the whole batch."""
    return task.subgroups(batch) or {"all": torch.ones(len(batch), dtype=torch.bool)}


def test_every_registered_task_has_a_preset():
    ours = {name for name in TASKS.names() if TASKS.get(name).__module__.startswith("mnemoscope.")}
    assert {task.name for task in TRAINED_ON} == ours


def enumerated(task, split: str):
    """Every sequence; none of a task that says of all its sequences that there are too many."""
    try:
        return task.enumerate(split=split)
    except InputError as refusal:
        if f"the sequences of {task.name} cannot be enumerated; draw samples" not in str(refusal):
            raise
        return None


def n_for(task) -> int:
    """So many sequences that they have about 2000 positions."""
    return 2000 // task.n_ctx


@each_task
def test_a_task_is_a_value_under_its_name(task):
    cls = type(task)
    assert TASKS.get(task.name) is cls
    assert isinstance(task, Task)
    assert dataclasses.replace(task) == task
    assert hash(dataclasses.replace(task)) == hash(task)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(task, dataclasses.fields(task)[0].name, 1)
    assert task.for_seed(0) == task


@each_task
def test_every_named_thing_is_documented(task):
    assert type(task).__doc__
    for name in task.references:
        assert f"`{name}`" in type(task).reference.__doc__, name
    for name in task.corruptions:
        assert f"`{name}`" in type(task).corrupt.__doc__, name


@each_task
@pytest.mark.parametrize("method", ["sample", "monitor"])
def test_batches_follow_their_generator_and_no_other(task, method):
    draw = getattr(task, method)
    with global_generators_untouched():
        first, again, other = (draw(64, split="train", generator=seeded(s)) for s in (3, 3, 4))
    for name in ("inputs", "targets", "scored"):
        assert torch.equal(getattr(first, name), getattr(again, name))
    assert not torch.equal(first.inputs, other.inputs)


@each_task
@pytest.mark.parametrize("split", SPLITS)
def test_batches_fit_the_sizes_that_the_task_states(task, split):
    batch = task.sample(64, split=split, generator=seeded())
    assert len(batch) == 64
    assert batch.inputs.shape[1] <= task.n_ctx
    assert batch.scored.any(1).all()
    if batch.has_vectors:
        assert (batch.inputs.shape[-1], batch.targets.shape[-1]) == (task.d_vocab, task.d_output)
        assert dict(batch.parts) == dict(task.parts)
    else:
        assert 0 <= batch.inputs.min() <= batch.inputs.max() < task.d_vocab
        assert 0 <= batch.targets.min() <= batch.targets.max() < max(task.d_vocab, n_outputs(task))
        assert set(batch.targets[batch.scored].tolist()) <= set(task.answers) <= set(range(n_outputs(task)))
    assert all(len(value) == 64 for value in batch.latents.values())


@each_task
@pytest.mark.parametrize("method", ["sample", "monitor"])
def test_positions_have_one_name_each_or_none(task, method):
    names = position_names(task)
    batch = getattr(task, method)(8, split="train", generator=seeded())
    assert tuple(batch.positions) == names
    if names:
        assert len(set(names)) == len(names) == task.n_ctx
        assert not set(names) & set(batch.latents)
        assert not any(name.lstrip("-").isdecimal() or " " in name for name in names)


@each_token_task
@pytest.mark.parametrize("split", SPLITS)
def test_references_are_probabilities_or_undefined(task, split):
    batch = task.sample(n_for(task), split=split, generator=seeded())
    for name in task.references:
        probabilities = task.reference(batch, name)
        assert probabilities.shape == (*batch.inputs.shape, n_outputs(task))
        assert probabilities.dtype == torch.double
        undefined = probabilities.isnan()
        assert torch.equal(undefined.any(-1), undefined.all(-1))
        assert undefined[~batch.scored].all()
        defined = probabilities[~undefined.any(-1)]
        assert len(defined), name
        assert (defined >= 0).all()
        assert defined.sum(-1).tolist() == pytest.approx([1] * len(defined), abs=1e-9)
    with pytest.raises(InputError, match="reference must be one of"):
        task.reference(batch, "no such reference")


@each_vector_task
def test_references_are_vectors_where_something_is_due(task):
    batch = task.sample(n_for(task), split="train", generator=seeded())
    for name in task.references:
        predicted = task.reference(batch, name)
        assert predicted.shape == batch.targets.shape
        assert predicted.dtype == torch.double
        assert torch.equal(predicted.isnan().any(-1), ~batch.scored), name
    with pytest.raises(InputError, match="reference must be one of"):
        task.reference(batch, "no such reference")


@each_vector_task
def test_parts_of_the_targets_cover_them(task):
    covered = torch.cat([torch.arange(task.d_output)[part] for part in task.parts.values()])
    assert covered.tolist() == list(range(task.d_output))


@each_token_task
def test_a_reference_does_not_look_at_what_it_predicts(task):
    batch = task.sample(n_for(task), split="train", generator=seeded())
    last = batch.scored.nonzero()[:, 1].max()
    hidden = batch.targets.clone()
    hidden[:, last:] = torch.tensor(list(task.answers))[0]
    blind = dataclasses.replace(batch, targets=hidden)
    for name in task.references:
        given, expected = (task.reference(b, name)[:, last] for b in (blind, batch))
        torch.testing.assert_close(given, expected, equal_nan=True, atol=0, rtol=0)


@each_vector_task
def test_the_loss_is_the_mean_squared_error_over_scored_positions(task):
    batch = task.sample(32, split="test", generator=seeded())
    assert task.loss(batch.targets, batch).item() == 0
    off = batch.targets + torch.where(batch.scored[..., None], 2.0, 7.0)
    assert task.loss(off, batch).item() == pytest.approx(4, rel=1e-5)


@each_token_task
def test_the_loss_is_cross_entropy_in_nats(task):
    batch = task.sample(32, split="test", generator=seeded())
    uniform = torch.zeros(*batch.inputs.shape, n_outputs(task))
    assert task.loss(uniform, batch).item() == pytest.approx(math.log(n_outputs(task)))
    right = torch.nn.functional.one_hot(batch.targets, n_outputs(task)) * 50.0
    assert task.loss(right, batch).item() == pytest.approx(0, abs=1e-6)


@each_task
def test_subgroups_and_skills_are_masks(task):
    batch = task.monitor(32, split="test", generator=seeded())
    groups = torch.stack(list(groups_of(task, batch).values()))
    assert (groups.sum(0) == 1).all()
    assert groups.any(1).all()
    for name, mask in task.skills(batch).items():
        assert mask.shape == batch.scored.shape, name
        assert mask.any(), name
        assert not (mask & ~batch.scored).any(), name


@each_task
def test_a_monitoring_batch_has_every_subgroup_and_weights_that_add_to_one(task):
    batch = task.monitor(32, split="test", generator=seeded())
    assert batch.weights.sum().item() == pytest.approx(1, abs=1e-5)
    assert {int(mask.sum()) for mask in groups_of(task, batch).values()} == {32}


@each_task
@pytest.mark.parametrize("split", SPLITS)
def test_an_enumeration_is_a_distribution_over_different_sequences(task, split):
    batch = enumerated(task, split)
    if batch is None:
        return
    assert batch.weights.double().sum().item() == pytest.approx(1, abs=1e-4)
    assert (batch.weights >= 0).all()
    whole = torch.cat((batch.inputs, batch.targets), 1)
    assert len(whole.unique(dim=0)) == len(batch)


@each_task
def test_counterfactuals_follow_their_generator_and_leave_the_clean_batch_alone(task):
    clean = task.monitor(32, split="test", generator=seeded())
    for kind in task.corruptions:
        n_pairs = 0
        for mask in groups_of(task, clean).values():
            part = clean.select(mask)
            try:
                with global_generators_untouched():
                    first, again = (task.corrupt(part, kind=kind, generator=seeded(1)) for _ in range(2))
            except InputError:
                continue  # the kind does not apply to this subgroup
            n_pairs += len(first)
            assert torch.equal(first.inputs, again.inputs)
            changed = (part.inputs != first.inputs).flatten(1) | (part.targets != first.targets).flatten(1).any(1)[
                :, None
            ]
            assert changed.any(1).all(), kind
            if not first.has_vectors:
                assert set(first.targets[first.scored].tolist()) <= set(task.answers)
            report = task.pair_report(part, first)
            assert all(0 <= value <= 1 for value in report.values())
            assert report["answer_changed"] in (0, 1), "the answer provably changes, or provably does not"
        assert n_pairs, kind
    assert torch.equal(clean.inputs, task.monitor(32, split="test", generator=seeded()).inputs)
    with pytest.raises(InputError, match="kind must be one of"):
        task.corrupt(clean, kind="no such kind", generator=seeded())


@each_task
def test_an_unknown_split_is_refused(task):
    with pytest.raises(InputError, match="split must be one of"):
        task.sample(3, split="no such split", generator=seeded())


# ---- presets


def test_a_preset_says_what_it_is():
    for name in PRESETS.names():
        preset = PRESETS.get(name)
        assert preset.summary.strip(), name
        assert TASKS.get(preset.task.name) is type(preset.task), name
        assert "quick" in preset.recipes, name
        assert all(recipe.name == key for key, recipe in preset.recipes.items()), name


def test_no_two_presets_are_the_same():
    presets = [PRESETS.get(name) for name in PRESETS.names()]
    kinds = [(preset.task, preset.model, tuple(preset.recipes.values())) for preset in presets]
    assert len(set(kinds)) == len(kinds)


def test_a_specification_survives_json_under_its_label():
    for name, recipe in RECIPES:
        spec = preset(name, recipe, 3)
        again = RunSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
        assert again == spec, (name, recipe)
        assert again.to_dict() == spec.to_dict(), (name, recipe)
        assert spec.label == again.label == f"{name}-{recipe}", (name, recipe)
        assert spec.seed == 3, (name, recipe)
        assert spec.replicates(preset(name, recipe, 4)), (name, recipe)


def test_schedules_and_checkpoints_are_in_order():
    for name, recipe in RECIPES:
        spec = preset(name, recipe, 0)
        check_schedules(spec)
        steps = spec.recipe.checkpoints
        assert steps[0] == 0, (name, recipe)
        assert steps[-1] == spec.recipe.n_steps, (name, recipe)
        assert list(steps) == sorted(set(steps)), (name, recipe)


@each_preset
def test_the_model_can_be_built_and_both_forward_passes_agree(name):
    spec = preset(name, "quick", 0)
    with global_generators_untouched():
        model = build_untrained(spec)
    batch = spec.task.sample(16, split="train", generator=seeded())
    expected = model(batch.inputs)
    assert expected.shape == (*batch.scored.shape, getattr(spec.task, "d_output", n_outputs(spec.task)))
    positions = batch.scored.any(0).nonzero()[:, 0]
    given = logits_of(detached_parameters(model), spec.model, batch.inputs, positions)
    torch.testing.assert_close(given, expected[:, positions], atol=1e-5, rtol=1e-5)
    off = matching_names(zero_patterns(spec.model), dict(model.named_parameters()))
    assert all(not model.state_dict()[key].any() for key in off)
