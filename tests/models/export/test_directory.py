"""Exported runs, loaded as their card says."""

import re
from pathlib import Path

import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.models.checkpoint import save_checkpoint
from mnemoscope.models.export import export_run
from mnemoscope.models.lens import HAS_HOOKED_TRANSFORMER
from mnemoscope.models.run import create_run
from tests.support import small_spec


@pytest.fixture
def make(tmp_path):
    def run(name="v3", **changes):
        made = create_run(tmp_path / f"run-{name}-{len(changes)}", small_spec(name, changes=changes))
        save_checkpoint(made.untrained(), made.checkpoint_path(0), step=0)
        return made

    return run


def loaded(place: Path, monkeypatch):
    """The models that the code of the card loads on this line of TransformerLens, by its order."""
    blocks = re.findall(r"```python\n(.*?)```", (place / "README.md").read_text(), re.DOTALL)
    monkeypatch.chdir(place)
    found = []
    for block in blocks:
        names = {}
        if "import HookedTransformer" in block and not HAS_HOOKED_TRANSFORMER:
            with pytest.raises(ImportError):
                exec(block, names)
            continue
        exec(block, names)
        found.append(names["model"])
    return found


def test_the_card_loads_what_was_trained(make, tmp_path, monkeypatch):
    run, place = make(), tmp_path / "out" / "exported"
    assert export_run(run, place) == []
    *hooked, gpt2 = loaded(place, monkeypatch)
    assert len(hooked) == (2 if HAS_HOOKED_TRANSFORMER else 1)
    tokens = torch.tensor([[0, 5, 1, 3]])
    with torch.no_grad():
        expected = run.model()(tokens)
        assert all(torch.equal(model(tokens), expected) for model in hooked)
        assert torch.allclose(gpt2(tokens).logits, expected, atol=1e-5)
    assert "permutation-lookup" in (place / "README.md").read_text()


def test_what_others_cannot_load_is_said(make, tmp_path, monkeypatch):
    run, place = make(**{"model.normalization": "none", "model.act_fn": "identity"}), tmp_path / "exported"
    plain, gpt2 = export_run(run, place)
    assert plain == "a plain HookedTransformer cannot hold it: it has linear MLPs"
    assert "its normalization is none, not LN; its activation function is identity" in gpt2
    (own,) = loaded(place, monkeypatch)
    tokens = torch.tensor([[0, 5, 1]])
    assert torch.equal(own(tokens), run.model()(tokens))


def test_a_second_export_takes_the_place_of_the_first(make, tmp_path):
    place = tmp_path / "exported"
    export_run(make(), place)
    assert (place / "transformers").exists()
    export_run(make(**{"model.normalization": "none"}), place)
    assert not (place / "transformers").exists()


def test_what_would_be_lost_is_refused(make, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds something else \(.*\); name an empty directory"):
        export_run(make(), tmp_path)
    with pytest.raises(InputError, match="is a file; name a directory"):
        export_run(make(), tmp_path / "notes.txt")
    with pytest.raises(InputError, match="the step of"):
        export_run(make(), tmp_path / "out", step=7)
    assert not (tmp_path / "out").exists()
