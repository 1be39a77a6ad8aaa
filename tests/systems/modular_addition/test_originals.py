"""The published models, where their files are: they add, and the two numbers lie in the range published for their c."""

import pytest
import torch

from mnemoscope import InputError
from mnemoscope.systems.modular_addition.analyses.circles import answer_logits, embedding_modes, forms
from mnemoscope.systems.modular_addition.analyses.gradients import irrelevance, symmetricity
from mnemoscope.systems.modular_addition.originals import load_original
from tests.originals import original_file

MIXES = {"p99zdpze5l": 0.0, "2k4ohj6bhd": 0.804, "l8k1hzciux": 1.0, "q9rsl94xlv": 1.0}
NEAR = 0.15
"""Published are means over many models."""


@pytest.mark.parametrize("name", MIXES)
def test_they_add(name):
    original = load_original(original_file(f"modadd-{name}"))
    assert original.attention_mix == pytest.approx(MIXES[name], abs=1e-3)
    assert original.task.modulus == 59
    guess = answer_logits(original.model, original.task).argmax(-1).flatten()
    assert torch.equal(guess, original.task.table().latents["sum"])
    assert float(embedding_modes(original.model, original.task).few) > 0.9


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "symmetric", "irrelevant"),
    [
        ("p99zdpze5l", 0.976, 0.402),
        ("2k4ohj6bhd", 0.607, 0.745),
        ("l8k1hzciux", 0.466, 0.824),
        ("q9rsl94xlv", 0.466, 0.824),
    ],
)
def test_their_numbers_are_those_of_their_bin(name, symmetric, irrelevant):
    original = load_original(original_file(f"modadd-{name}"))
    model, task = original.model, original.task
    assert symmetricity(model, task) == pytest.approx(symmetric, abs=NEAR)
    assert irrelevance(model, task) == pytest.approx(irrelevant, abs=2 * NEAR)
    shares = forms(model, task).share
    best = "pizza" if original.attention_mix == 0 else "clock"
    assert str(shares.form.values[shares.argmax()]) == best


def test_other_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="not there"):
        load_original(tmp_path / "none.safetensors")
    from safetensors.torch import save_file

    save_file({"weight": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="authors' configuration"):
        load_original(tmp_path / "other.safetensors")
