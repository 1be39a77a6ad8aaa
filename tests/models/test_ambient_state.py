"""Weights and draws follow from specification and seed, whatever torch's defaults are; gradients need no more."""

import ast
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

import mnemoscope as ms
from mnemoscope.core.seeding import fixed_defaults
from mnemoscope.models.building import build_untrained
from tests.doc_examples import shared_names

SOURCE = Path(ms.__file__).parent
SPEC = ms.preset("v3", "quick", 0)


@contextmanager
def double():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def elsewhere():
    with torch.device("meta"):
        yield


@pytest.mark.parametrize("state", [double, elsewhere, torch.inference_mode])
@pytest.mark.parametrize("own", [False, True])
def test_the_weights_are_those_of_the_seed(state, own):
    expected = dict(build_untrained(SPEC, own=own).named_parameters())
    with state():
        found = dict(build_untrained(SPEC, own=own).named_parameters())
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    assert not any(value.is_inference() for value in found.values())


def test_sequences_are_those_of_the_seed():
    batches = [SPEC.task.sample(8, split="train", generator=ms.generator(0, "ambient"))]
    with double():
        batches.append(SPEC.task.sample(8, split="train", generator=ms.generator(0, "ambient")))
    assert torch.equal(batches[0].inputs, batches[1].inputs)


def test_every_draw_of_floats_names_its_precision():
    silent = [
        f"{file.relative_to(SOURCE)}:{node.lineno}"
        for file in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("torch.rand", "torch.randn")
        and "dtype" not in {word.arg for word in node.keywords}
    ]
    assert silent == []


def test_a_model_that_was_loaded_in_inference_mode_has_gradients():
    run, pairs = ms.open_run("zoo:v3-quick/seed-16"), shared_names()["pairs"]
    expected = ms.analyses.attribute_edges(run.model(), pairs)
    with torch.inference_mode():
        model = run.model()
    assert ms.analyses.attribute_edges(model, pairs).identical(expected)
    with torch.inference_mode(), pytest.raises(ms.InputError, match=r"outside torch\.inference_mode"):
        ms.analyses.attribute_edges(model, pairs)


def test_the_defaults_are_as_before_also_after_an_error():
    def fail():
        with fixed_defaults():
            assert torch.get_default_dtype() == torch.float32
            assert not torch.is_inference_mode_enabled()
            raise ZeroDivisionError

    with double(), torch.inference_mode():
        with pytest.raises(ZeroDivisionError):
            fail()
        assert torch.get_default_dtype() == torch.float64
        assert torch.is_inference_mode_enabled()
