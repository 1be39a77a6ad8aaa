"""Attacks on the count of seeds: one run under several numbers, changed so that no bits are equal."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import SYSTEMS
from mnemoscope.models import independence, likeness, zoo
from mnemoscope.models.building import build_untrained, detached_parameters, held_patterns, matching_names
from mnemoscope.models.checkpoint import save_checkpoint
from mnemoscope.models.independence import (
    check_replicates,
    inspect_runs,
    shared_parts,
    shared_sentence,
)
from mnemoscope.models.likeness import DIFFERENT, DISTANT, distance, distances, portrait
from mnemoscope.models.run import Run, find_runs, open_run
from mnemoscope.training.learner import Learner
from mnemoscope.training.loop import update
from mnemoscope.training.monitors import Monitors
from mnemoscope.training.schedule import TrainingBatches
from tests.support import seeded

SOURCE = "zoo:v3-quick/seed-16"


@pytest.fixture(scope="module")
def source() -> Run:
    return open_run(SOURCE)


def weights(run: Run) -> dict[str, torch.Tensor]:
    return detached_parameters(run.hooked())


def noise(params, spec, scale=1e-6):
    return {name: value + scale * torch.randn(value.shape, generator=seeded(1)) for name, value in params.items()}


def permuted_neurons(params, spec):
    order = torch.randperm(spec.model.mlp_width, generator=seeded(2))
    changed = {"mlp.W_in": (..., order), "mlp.b_in": (order,), "mlp.W_out": (order,)}
    return {
        name: value[changed[key]] if (key := name.partition(".0.")[2]) in changed else value
        for name, value in params.items()
    }


def permuted_heads(params, spec):
    return {name: value.flip(0) if ".attn." in name and name[-3:] != "b_O" else value for name, value in params.items()}


def flipped_signs(params, spec):
    """Of queries with keys, and of values with what reads them."""
    signs = torch.tensor([1.0, -1.0]).repeat(spec.model.head_width // 2)
    rows = ("attn.W_O",)
    columns = ("attn.W_Q", "attn.W_K", "attn.W_V", "attn.b_Q", "attn.b_K", "attn.b_V")
    return {
        name: value * signs[:, None] if name.endswith(rows) else value * signs if name.endswith(columns) else value
        for name, value in params.items()
    }


def flipped_residual(params, spec):
    """All dimensions of the residual stream: a normalisation takes them as they come."""
    writes = ("W_E", "W_pos", "W_O", "b_O", "W_out", "b_out")
    reads = ("W_Q", "W_K", "W_V", "W_in", "W_U")
    along = ("ln1.b", "ln2.b", "ln_final.b")  # b is added behind the change of sign
    return {name: -value if name.endswith((*writes, *reads, *along)) else value for name, value in params.items()}


def permuted_residual(params, spec):
    order = torch.randperm(spec.model.d_model, generator=seeded(3))
    last = (
        "W_E",
        "W_pos",
        "W_O",
        "b_O",
        "W_out",
        "b_out",
        "ln1.w",
        "ln1.b",
        "ln2.w",
        "ln2.b",
        "ln_final.w",
        "ln_final.b",
    )
    rows = ("W_Q", "W_K", "W_V", "W_in", "W_U")
    return {
        name: value[..., order] if name.endswith(last) else value[..., order, :] if name.endswith(rows) else value
        for name, value in params.items()
    }


def rescaled(params, spec):
    """Neurons by positive factors, and values against what reads them."""
    factor = torch.rand(spec.model.mlp_width, generator=seeded(4)) + 0.5
    changed = {
        "mlp.W_in": lambda value: value * factor,
        "mlp.b_in": lambda value: value * factor,
        "mlp.W_out": lambda value: value / factor[:, None],
        "attn.W_V": lambda value: 3 * value,
        "attn.b_V": lambda value: 3 * value,
        "attn.W_O": lambda value: value / 3,
    }
    return {name: changed.get(name.partition(".0.")[2], lambda value: value)(value) for name, value in params.items()}


def all_at_once(params, spec):
    for change in (permuted_neurons, permuted_heads, flipped_signs, rescaled, permuted_residual, noise):
        params = change(params, spec)
    return params


def trained_on(params, spec, n_steps=30):
    """More steps at the full rate on the data of another seed."""
    learner = Learner(spec.model, spec.recipe, [params], [{}])
    data, positions = TrainingBatches([replace(spec, seed=4711)]), Monitors([spec]).positions
    held = matching_names(held_patterns(spec.model), learner.names)
    for step in range(spec.recipe.warmup_steps, spec.recipe.warmup_steps + n_steps):
        update(learner, data, spec, step, positions, held)
    return learner.parameters(0)


def rotation_of(run: Run) -> torch.Tensor:
    """A random rotation of the residual stream."""
    return torch.linalg.qr(torch.randn(run.spec.model.d_model, run.spec.model.d_model, generator=seeded())).Q


def rotated(params, rotation):
    writes, reads = ("W_E", "W_pos", "W_O", "b_O", "W_out", "b_out"), ("W_Q", "W_K", "W_V", "W_in", "W_U")
    return {
        name: value @ rotation if name.endswith(writes) else rotation.T @ value if name.endswith(reads) else value
        for name, value in params.items()
    }


SYMMETRIES = [permuted_neurons, permuted_heads, flipped_signs, flipped_residual, permuted_residual, rescaled]
ATTACKS = [noise, *SYMMETRIES, all_at_once, trained_on]


def copied(source: Run, place: Path, seed: int, params=None) -> Run:
    """The run under another seed, whose record says that it is that seed's; with other weights at its end, if given."""
    shutil.copytree(source.path, place)
    for file in (place / "checkpoints").glob("*"):
        if int(file.name[:8]) != source.last_step:
            file.unlink()
    content = json.loads((place / "run.json").read_text())
    content.pop("final_weights", None)
    content["seed"] = content["task"]["split_seed"] = seed
    (place / "run.json").write_text(json.dumps(content))
    run = open_run(place)
    if params is not None:
        model = build_untrained(source.spec, own=True)
        model.load_state_dict({**model.state_dict(), **params})
        save_checkpoint(model, run.checkpoint_path(run.last_step), step=run.last_step)
    return run


@pytest.mark.parametrize("change", SYMMETRIES, ids=lambda each: each.__name__)
def test_a_symmetry_changes_no_output(source, change):
    """Otherwise the attack were none."""
    before, after = source.hooked(), source.hooked()
    after.load_state_dict({**after.state_dict(), **change(weights(source), source.spec)})
    tokens = likeness.random_inputs(source.spec)
    torch.testing.assert_close(after(tokens), before(tokens), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda each: each.__name__)
def test_a_copy_is_near_and_its_distance_says_so(source, attack):
    one = weights(source)
    found = distance(portrait(one, source.spec), portrait(attack(one, source.spec), source.spec))
    assert found.near
    assert found.weights < 0.08


@pytest.mark.parametrize("attack", [noise, all_at_once, trained_on], ids=lambda each: each.__name__)
def test_copies_are_refused_by_name(source, attack, tmp_path, monkeypatch):
    """The run that was copied need not be among them."""
    copies = [copied(source, tmp_path / "a", 40, weights(source))]
    copies.append(copied(source, tmp_path / "b", 41, attack(weights(source), source.spec)))
    with pytest.raises(InputError, match=r"a and .*b, seeds 40 and 41 of v3, hold nearly the same weights \(.* apart"):
        check_replicates(copies)
    monkeypatch.setattr(independence, "DISTANT", 0)
    monkeypatch.setattr(likeness, "DISTANT", 0)
    monkeypatch.setattr(likeness, "DIFFERENT", -1)
    check_replicates(copies)  # what refused them is the distance


def test_a_copy_descends_from_the_seed_of_its_source(source, tmp_path, monkeypatch):
    """Far from its source after long training on other data, it still resembles the weights that the source had."""
    monkeypatch.setattr(likeness, "DISTANT", 0)
    copy = copied(source, tmp_path / "copy", 41, noise(weights(source), source.spec, 0.05))
    message = "does not descend from the initial weights of its seed 41 but from those of seed 16"
    with pytest.raises(InputError, match=message):
        check_replicates([source, copy])


def test_any_way_of_writing_the_same_function_is_a_copy(tmp_path):
    """Without a normalisation the residual stream may be rotated, which no matching of dimensions undoes."""
    run = open_run("zoo:v3-no-norm-published/seed-16")
    turned = rotated(weights(run), rotation_of(run))
    found = distance(portrait(weights(run), run.spec), portrait(turned, run.spec))
    assert found.weights > DISTANT
    assert found.function < 1e-5
    assert found.near


def test_seeds_with_one_function_are_no_copies_and_a_copy_in_another_basis_is_one(tmp_path):
    """Seeds that solve a task exactly give the same logits; each still has the weights that its own seed gave it."""
    run, other = (open_run(f"zoo:v3-no-norm-published/seed-{seed}") for seed in (16, 17))
    logits = {
        "unembed.W_U": torch.zeros_like(weights(run)["unembed.W_U"]),
        "unembed.b_U": torch.arange(len(weights(run)["unembed.b_U"])) / 10,
    }
    own, others = weights(run) | logits, weights(other) | logits
    assert distance(portrait(own, run.spec), portrait(others, run.spec)).function < DIFFERENT
    pair = [copied(run, tmp_path / "a", 16, own), copied(run, tmp_path / "b", 17, others)]
    assert [found.problem for found in inspect_runs(pair)] == ["", ""]
    turned = copied(run, tmp_path / "c", 17, rotated(own, rotation_of(run)))
    with pytest.raises(InputError, match=r"a and .*c, seeds 16 and 17 of v3.* hold nearly the same weights"):
        check_replicates([pair[0], turned])


def test_equal_bits_are_refused_where_seeds_share_their_initial_weights(tmp_path):
    run = open_run("zoo:facts-linear-quick/seed-16")
    content = shutil.copytree(run.path, tmp_path / "copy")
    record = json.loads((content / "run.json").read_text())
    (content / "run.json").write_text(json.dumps({**record, "seed": 40}))
    with pytest.raises(InputError, match="hold the same weights"):
        check_replicates([run, open_run(content)])


def test_a_run_that_was_cut_to_an_earlier_step_is_refused(source, tmp_path):
    """Its late checkpoints deleted, and the last step edited; and its metrics too."""
    cut = shutil.copytree(source.path, tmp_path / "cut")
    step = source.steps[-2]
    (cut / "checkpoints" / f"{source.last_step:08d}.safetensors").unlink()
    record = json.loads((cut / "run.json").read_text())
    (cut / "run.json").write_text(json.dumps({**record, "last_step": step}))
    with pytest.raises(InputError, match=f"with step {step}, but its metrics end with step 4000"):
        check_replicates([open_run(cut)])
    lines = [json.loads(line) for line in (cut / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["step"] < step]
    (cut / "metrics.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in [*lines, {**lines[-1], "step": step}])
    )
    with pytest.raises(InputError, match="but its recipe has 4000 and no early stopping"):
        check_replicates([open_run(cut)])


def test_a_run_that_stopped_before_it_was_good_enough_is_refused(tmp_path):
    run = open_run("zoo:facts-narrow-quick/seed-16")
    cut = shutil.copytree(run.path, tmp_path / "cut")
    lines = (cut / "metrics.jsonl").read_text().splitlines(keepends=True)[:3]
    step = json.loads(lines[-1])["step"]
    (cut / "metrics.jsonl").write_text("".join(lines))
    (checkpoint,) = (cut / "checkpoints").iterdir()
    checkpoint.rename(checkpoint.with_name(f"{step:08d}.compact.safetensors"))
    record = json.loads((cut / "run.json").read_text())
    (cut / "run.json").write_text(json.dumps({**record, "last_step": step}))
    with pytest.raises(InputError, match=f"with step {step}, before its skills reached 0.99"):
        check_replicates([open_run(cut)])


def test_initial_weights_of_another_seed_are_refused(source, tmp_path):
    run = shutil.copytree(source.path, tmp_path / "run")
    model = build_untrained(replace(source.spec, seed=17), own=True)
    save_checkpoint(model, run / "checkpoints" / "00000000.safetensors", step=0)
    with pytest.raises(InputError, match="does not hold the initial weights of seed 16: they differ by"):
        check_replicates([open_run(run)])


def test_a_digest_of_other_initial_weights_is_refused_on_the_machine_that_wrote_it(source, tmp_path):
    run = shutil.copytree(source.path, tmp_path / "run")
    record = json.loads((run / "run.json").read_text())
    origin = {"initial_weights": "0" * 64, "machine": independence.machine()}
    (run / "run.json").write_text(json.dumps({**record, "origin": origin}))
    with pytest.raises(InputError, match="names other initial weights than seed 16 gives"):
        check_replicates([open_run(run)])
    (run / "run.json").write_text(json.dumps({**record, "origin": {**origin, "machine": "Other"}}))
    (found,) = check_replicates([open_run(run)])
    assert any("from another kind of machine (Other)" in each for each in found.missing)


def test_independent_seeds_descend_from_their_own_weights_and_are_far_apart():
    runs = find_runs("zoo:d4-quick")  # the smallest models
    found = check_replicates(runs)
    assert all(each.resembles for each in found)
    nearest = min(distances([portrait(weights(run), run.spec) for run in runs]).values())
    assert nearest.weights > 1.5 * DISTANT
    assert nearest.function > 100 * DIFFERENT


def test_weights_of_unknown_origin_are_unverified(source, tmp_path):
    """A run of others: its weights follow from no seed that we know, and no digests were written down."""
    stranger = detached_parameters(build_untrained(replace(source.spec, seed=999), own=True))
    (found,) = inspect_runs([copied(source, tmp_path / "run", 40, noise(stranger, source.spec, 0.1))])
    assert not found.problem
    assert not found.verified
    assert any("do not resemble the initial weights of the seed" in each for each in found.missing)


def test_what_seeds_share_is_derived():
    linear, softmax = (find_runs(f"zoo:facts-{kind}-quick")[:2] for kind in ("linear", "softmax"))
    assert shared_parts(linear) == ("initial weights", "facts")
    assert shared_parts(softmax) == ("facts",)
    assert shared_parts(find_runs("zoo:v3-quick")[:3]) == ()
    assert shared_sentence(("facts",)) == "all seeds share the facts"
    assert "draws of data, and the claim is about these only" in shared_sentence(shared_parts(linear))
    fixed = [replace(run, spec=replace(run.spec, task=replace(run.spec.task, facts_seed=7))) for run in softmax]
    assert shared_parts(fixed) == ("facts",)


@pytest.mark.drawn(8)
@pytest.mark.thorough
@pytest.mark.parametrize("label", [label for name in SYSTEMS.names() for label in zoo.runs_to_pack(name)])
def test_shipped_runs_are_trainings_of_their_own(label):
    runs = find_runs(f"zoo:{label}")
    found = check_replicates(runs)
    if shared_parts(runs)[:1] != ("initial weights",):
        assert all(each.resembles for each in found)
        assert min(distances([portrait(weights(run), run.spec) for run in runs]).values()).weights > 1.2 * DISTANT
