"""What the package gives, against what it gave before its forward pass was written anew. Run by `make test-golden`.

Numbers lie in `data`, as `summary` explains, and are compared within tolerances that hold on any processor; digests
are compared on the processor of the record only. `make golden` writes them anew.
"""

import copy
import json
from dataclasses import replace
from importlib import import_module

import pytest
import torch

import mnemoscope as ms
from mnemoscope.claims.recorded import recorded_verdicts
from mnemoscope.core.site import KINDS, OF_DICTIONARY
from tests.golden import analyses, forward, trainings, verdicts
from tests.golden.models import DEVICE, case
from tests.golden.summary import (
    DATA,
    Arrays,
    Tolerance,
    differences,
    machine,
    read,
    starting,
    summaries,
)

pytestmark = pytest.mark.golden
FORWARD = Tolerance(relative=1e-5, absolute=1e-8)
GRADIENTS = Tolerance(relative=1e-4, absolute=5e-7)
"""Rounding grows on the way back; biases of keys have no gradient but rounding."""
DEEP = Tolerance(relative=1e-3, absolute=5e-7)
"""Of the gradients of twelve layers that were trained on vectors: on another processor 4e-4 is found."""
ANALYSES = Tolerance(relative=1e-5, absolute=2e-6)
"""Effects are differences of logits of size one to ten, whose own rounding is 1e-6 each."""
TRAININGS = {"float64": Tolerance(relative=1e-7, absolute=1e-9), "float32": Tolerance(relative=2e-5, absolute=2e-6)}
"""With SSE4.2 alone in place of AVX2, parameters were off by a twentieth of the first and a seventh of the second."""
VERDICTS = Tolerance(relative=1e-4, absolute=1e-5)
_BITS = json.loads((DATA / "bits.json").read_text())
_NAMES = json.loads((DATA / "names.json").read_text())


def off(part: str, prefix: str, found: Arrays, tolerance: Tolerance) -> str:
    """What differs from the record, in lines; empty: nothing."""
    return "\n".join(differences(summaries(found), starting(f"{prefix}/", read(part)), tolerance))


@pytest.mark.parametrize("name", forward.NAMES)
def test_logits_and_activations(name):
    assert not off("forward", name, forward.of_activations(name), FORWARD)


@pytest.mark.parametrize("name", forward.NAMES)
def test_gradients(name):
    tolerance = DEEP if name == "retrieval-3-quick" else GRADIENTS
    assert not off("gradients", name, forward.of_gradients(name), tolerance)


def test_every_kind_of_activation_is_on_record():
    assert {name.split("/")[1].split(" ")[0] for name in read("forward")} == {*KINDS, "logits"} - {*OF_DICTIONARY}


@pytest.mark.parametrize(
    ("name", "measure"),
    [pytest.param(name, do, id=f"{name} {do.__name__}") for name, plan in analyses.PLAN.items() for do in plan],
)
def test_analyses(name, measure):
    assert not off("analyses", f"{name}/{measure.__name__}", analyses.arrays(name, measure), ANALYSES)


@pytest.mark.parametrize("name", ms.PRESETS.names())
def test_trainings(name):
    assert not off("trainings", name, trainings.arrays(name), TRAININGS[trainings.dtype_of(name)])


@pytest.mark.skipif(
    DEVICE != "cpu" or machine() != _BITS["machine"], reason="bits depend on the processor and on PyTorch"
)
@pytest.mark.parametrize(("part", "name"), [(part, name) for part in ("forward", "trainings") for name in _BITS[part]])
def test_bits(part, name):
    assert {"forward": forward, "trainings": trainings}[part].bits(name) == _BITS[part][name]


@pytest.mark.parametrize("id", verdicts.CLAIMS)
def test_verdicts(id):
    found, recorded = verdicts.ruling(id), recorded_verdicts()[id]
    assert (found.verdict.outcome, found.verdict.n) == (recorded.outcome, recorded.n)
    assert not off("verdicts", id, verdicts.arrays(id, found), VERDICTS)


@pytest.mark.parametrize("module", _NAMES)
def test_no_public_name_is_gone(module):
    room = import_module(module)  # old names work too, with a warning
    assert [name for name in _NAMES[module] if not hasattr(room, name)] == []


@pytest.mark.parametrize("parameter", ["embed.W_E", "blocks.0.attn.W_O", "blocks.0.mlp.b_out", "unembed.b_U"])
@pytest.mark.parametrize("name", ["v3-quick", "birth-2-layers-quick", "gpt2", "llama"])
def test_one_weight_that_is_off_by_a_thousandth_is_noticed(monkeypatch, name, parameter):
    model = copy.deepcopy(case(name).model)
    with torch.no_grad():
        token = int(case(name).batch.inputs[0, 0]) if parameter == "embed.W_E" else 0
        value = dict(model.named_parameters())[parameter][token]
        value.view(-1)[0] += 1e-3
    changed = replace(case(name), model=model)
    before = forward.bits(name)
    for module in (forward, analyses):
        monkeypatch.setattr(module, "case", lambda _: changed)
    assert forward.bits(name) != before
    if (name, parameter) == ("v3-quick", "blocks.0.mlp.b_out"):
        return  # what this MLP writes has a norm of 5,000, which the next normalisation takes away
    assert f"{name}/logits is off" in off("forward", name, forward.of_activations(name), FORWARD)
    assert f"{name}/attribution/component/attribution is off" in off(
        "analyses", f"{name}/attribution", analyses.arrays(name, analyses.attribution), ANALYSES
    )


def test_a_learning_rate_that_is_off_by_a_thousandth_is_noticed(monkeypatch):
    short = trainings.short

    def faster(name, dtype):
        spec = short(name, dtype)
        return replace(spec, recipe=replace(spec.recipe, learning_rate=1.001 * spec.recipe.learning_rate))

    monkeypatch.setattr(trainings, "short", faster)
    found = off("trainings", "v3", trainings.arrays("v3"), TRAININGS["float64"])
    assert "v3/step 20 blocks.attn.W_Q is off" in found
    assert "v3/metric test_loss is off" in found
