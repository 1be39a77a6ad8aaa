from itertools import product
from math import exp

import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.models.constructed import layer_normalised
from mnemoscope.models.lens import HookedTransformer
from mnemoscope.systems.tiny_recall import constructed
from mnemoscope.systems.tiny_recall.constructed import dissociated, dissociated_circuit, shared_store_circuit
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import global_generators_untouched, seeded

TASK = PermutationLookup(repeat_ratio=0.5)
COMPLETE = ("dissociated", "shared_store", "two_layer_recall")
LOOKUP = (*COMPLETE, "elimination_only")
KINDS = ("zero", "mean", "resample")


@pytest.fixture(scope="module")
def everything():
    """Every 41st of the 72,000 sequences: all mappings, orders and source slots occur."""
    return TASK.enumerate(split="all").select(slice(None, None, 41))


@pytest.fixture(scope="module")
def models():
    return {name: getattr(constructed, name)() for name in LOOKUP}


@torch.no_grad()
def probabilities(model, batch):
    return model(batch.inputs).softmax(-1)


def at_target(probs, batch):
    return probs.gather(-1, batch.targets[..., None])[..., 0]


def accuracy(logits, batch, task=TASK):
    right = (logits.argmax(-1) == batch.targets).double()
    return {name: float(right[mask].mean()) for name, mask in task.skills(batch).items()}


@torch.no_grad()
def without(model, batch, component, kind, reference=None):
    """Logits with a head (layer, number) or an MLP (layer,) replaced."""
    reference = batch if reference is None else reference
    hook = f"blocks.{component[0]}.{'attn.hook_z' if len(component) == 2 else 'hook_mlp_out'}"
    index = (slice(None), slice(None), *component[1:])
    _, cache = model.run_with_cache(reference.inputs, names_filter=hook)
    rows = torch.randint(len(reference), (len(batch),), generator=seeded())

    def replace(activation, hook):
        result, source = activation.clone(), cache[hook.name]
        result[index] = {"zero": 0 * source[:1], "mean": source.mean(0, keepdim=True), "resample": source[rows]}[kind][
            index
        ]
        return result

    return model.run_with_hooks(batch.inputs, fwd_hooks=[(hook, replace)])


@pytest.mark.parametrize("name", COMPLETE)
def test_both_skills_are_right(models, name):
    batch = TASK.enumerate(split="all").select(slice(None, None, 7))
    probs = probabilities(models[name], batch)
    for mask in TASK.skills(batch).values():
        assert at_target(probs, batch)[mask].min() > 0.99


@torch.no_grad()
def test_elimination_alone_gives_the_unused_value_everywhere(models, everything):
    logits = models["elimination_only"](everything.inputs)
    expected = torch.full((len(everything), 6), -10.0).scatter(1, everything.latents["unused"][:, None], 0.0)
    torch.testing.assert_close(logits[:, -1, 1:], expected[:, 1:], atol=1e-4, rtol=0)
    assert accuracy(logits, everything) == {"elimination": 1, "recall": 0}
    mask = TASK.skills(everything)["elimination"]
    torch.testing.assert_close(
        at_target(logits.softmax(-1), everything)[mask], torch.full((int(mask.sum()),), 1 / (1 + 4 * exp(-10)))
    )
    for kind in KINDS:
        batch = everything.select(mask[:, -1])
        lost, kept = (without(models["elimination_only"], batch, (0, head), kind) for head in (0, 1))
        assert accuracy(lost, batch)["elimination"] <= 0.25
        torch.testing.assert_close(kept, logits[mask[:, -1]])
    third = torch.zeros(len(everything), 6).scatter(1, everything.latents["y"][:, :2], -20.0)
    torch.testing.assert_close(logits[:, 4, 1:], third[:, 1:], atol=1e-4, rtol=0)


@pytest.mark.parametrize(("name", "first"), [("dissociated", 0), ("shared_store", 0), ("two_layer_recall", 2)])
def test_predictions_are_bayes_optimal(models, everything, name, first):
    difference = probabilities(models[name], everything) - TASK.reference(everything, "bayes")
    assert difference[:, first::2].abs().max() < 1e-3


BOTH = {"elimination", "recall"}
LOST = {
    ("dissociated", (0, 0)): {"elimination"},
    ("dissociated", (0, 1)): {"recall"},
    ("dissociated", (0,)): {"recall"},
    ("shared_store", (0, 0)): BOTH,
    ("shared_store", (0, 1)): {"recall"},
    ("shared_store", (0,)): {"recall"},
    ("two_layer_recall", (1, 0)): {"elimination"},
    ("two_layer_recall", (1, 1)): {"recall"},
}


@pytest.mark.parametrize(("name", "component"), LOST)
def test_each_component_costs_its_skills_and_no_other(models, everything, name, component):
    lost = LOST[name, component]
    repeats = everything.latents["is_repeat"]
    for kind, skill in product(KINDS, BOTH):
        batch = everything.select(repeats == (skill == "recall"))
        reference = batch if kind == "resample" else everything  # from the same class: see the next test
        value = accuracy(without(models[name], batch, component, kind, reference), batch)[skill]
        assert value <= 0.25 if skill in lost else value == 1, (kind, skill, value)
        if lost == {"recall"} == {skill} and kind != "resample":
            assert value == 0  # what is left is elimination


@pytest.mark.parametrize(
    ("name", "component", "share"),
    [
        ("dissociated", (0, 1), 4 / 25),
        ("dissociated", (0,), 4 / 5),
        ("shared_store", (0, 1), 1 / 5),
        ("shared_store", (0,), 4 / 5),
        ("two_layer_recall", (1, 1), 4 / 5),
    ],
)
def test_what_resampling_from_repeats_costs_elimination(models, everything, name, component, share):
    fresh, repeats = (everything.select(everything.latents["is_repeat"] == flag) for flag in (False, True))
    logits = without(models[name], fresh, component, "resample", repeats)
    assert accuracy(logits, fresh)["elimination"] == pytest.approx(1 - share, abs=0.06)


def residual(model, batch, circuit, name, at="blocks.0.hook_resid_mid"):
    _, cache = model.run_with_cache(batch.inputs)
    return cache[at][0, -1, circuit.dims[name]]


def close(actual, expected):
    torch.testing.assert_close(actual, torch.tensor(expected), atol=1e-4, rtol=0)


def test_what_the_recall_head_of_the_dissociated_model_writes(models):
    model, circuit = models["dissociated"], dissociated_circuit()

    def written(tokens):
        batch = TASK.parse(tokens)
        return [residual(model, batch, circuit, n) for n in ("stored", "source", "missing", "fresh", "unit")]

    z = 15 + 15 - 2 + 3 / 4  # query 4: stood at slot 2, and as the y of slot 3, which weighs 2
    stored, source, missing, fresh, unit = written("1 3 4 5 2 4 3 2 4")
    close(stored * z, [0.0, 0.25, 1.25, 8.25, 15.0, 4.0])
    close(torch.cat((source, missing, fresh, unit)) * z, [4.0, 2.0, 0.0, 1.0])

    z = 15 + 15 + 4 / 4  # query 5: new, and not among the y
    stored, source, missing, fresh, unit = written("1 3 4 2 2 4 3 1 5")
    close(stored * z, [0.0, 1.25, 4.25, 8.25, 2.25, 15.0])
    close(torch.cat((source, missing, fresh, unit)) * z, [0.0, 0.0, 1.0, 1.0])


def test_what_the_heads_of_the_shared_store_write(models):
    model, circuit = models["shared_store"], shared_store_circuit()

    def written(tokens):
        batch = TASK.parse(tokens)
        return {n: residual(model, batch, circuit, n) for n in ("stored", "matched", "source", "repeat", "answer")}

    repeat, fresh = written("1 3 4 5 2 4 3 2 4"), written("1 3 4 5 2 4 3 2 5")
    for one in (repeat, fresh):
        close(one["stored"], [0.0, 0.0, 1.0, 8.0, 2.0, 4.0])
        torch.testing.assert_close(one["answer"], -10 * one["stored"])
    close(repeat["matched"], [0.0, 0.0, 0.0, 0.0, 1.0, 0.0])
    close(torch.cat((repeat["source"], repeat["repeat"])), [4.0, 1.0])
    close(fresh["matched"], [0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    close(torch.cat((fresh["source"], fresh["repeat"])), [0.0, 0.0])


@pytest.mark.parametrize("name", ["dissociated", "shared_store"])
def test_the_neurons_of_query_and_value_write_that_value_and_are_shut_elsewhere(models, everything, name):
    model, circuit = models[name], getattr(constructed, f"{name}_circuit")()
    _, cache = model.run_with_cache(everything.inputs, names_filter="blocks.0.mlp.hook_post")
    post, latents = cache["blocks.0.mlp.hook_post"], everything.latents
    tents = torch.tensor([group for key, group in circuit.neurons.items() if len(key) == 2])
    assert sorted(sum(circuit.neurons.values(), ())) == list(range(model.cfg.d_mlp))
    assert not post[:, :-1, tents.flatten()].any()
    assert not post[~latents["is_repeat"]][:, -1].any()
    written = torch.stack([post[:, -1, n] @ model.W_out[0, n] for n in tents], 1)[..., circuit.dims["answer"]]
    for row in range(0, len(everything), 29):
        pair = (int(latents["x"][row, -1]), int(latents["recalled"][row]))
        for i, key in enumerate(k for k in circuit.neurons if len(k) == 2):
            if key == pair:
                assert written[row, i, key[1]] > 29
                assert written[row, i].count_nonzero() == 1
            else:
                assert written[row, i].abs().max() < 0.01


def test_where_the_heads_of_the_two_layer_model_attend(models, everything):
    _, cache = models["two_layer_recall"].run_with_cache(everything.inputs)
    recall = cache["blocks.1.attn.hook_pattern"][:, 1, -1]
    latents = everything.latents
    expected = torch.where(latents["is_repeat"], latents["source_pos"] + 1, 8)
    assert recall.gather(1, expected[:, None]).min() > 0.99
    previous, copy = cache["blocks.0.attn.hook_pattern"].unbind(1)
    for y in (1, 3, 5, 7):
        assert previous[:, y, y - 1].min() > 0.99
        assert copy[:, y, y].min() > 0.99
    assert previous[:, 8, 8].min() > 0.99
    torch.testing.assert_close(copy[:, 8, ::2], torch.full((len(everything), 5), 0.2))


@pytest.mark.parametrize("n_values", [3, 4, 6, 8])
@pytest.mark.parametrize("name", COMPLETE)
def test_other_numbers_of_values(name, n_values):
    task = PermutationLookup(n_values=n_values, repeat_ratio=0.5)
    batch = task.sample(500, split="all", generator=seeded())
    probs = probabilities(getattr(constructed, name)(n_values), batch)
    for mask in task.skills(batch).values():
        assert at_target(probs, batch)[mask].min() > 0.99


@pytest.mark.parametrize("name", LOOKUP)
def test_layer_normalisation_changes_little(models, everything, name):
    model = layer_normalised(models[name])
    assert model.cfg.normalization_type == "LN"
    difference = probabilities(model, everything) - probabilities(models[name], everything)
    assert difference[:, 2::2].abs().max() < 1e-3
    for (of, component), lost in LOST.items():
        if of == name:
            values = accuracy(without(model, everything, component, "mean"), everything)
            assert all(value <= 0.25 if skill in lost else value == 1 for skill, value in values.items())


def test_a_number_of_values_that_the_task_does_not_have_is_refused():
    with pytest.raises(InputError, match="n_values must be from 3 to 8; got 2"):
        dissociated(2)


def test_models_are_ordinary_and_leave_the_global_generators_alone():
    with global_generators_untouched():
        for name in LOOKUP:
            model = getattr(constructed, name)()
            assert isinstance(model, HookedTransformer)
            assert all(p.requires_grad and p.dtype == torch.float32 for p in model.parameters())
