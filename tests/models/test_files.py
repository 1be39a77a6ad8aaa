from pathlib import Path

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from safetensors.torch import save_file

from mnemoscope.core.errors import InputError
from mnemoscope.models.checkpoint import digest, read_tensors, write_tensors
from mnemoscope.models.files import write_atomically
from tests.support import flip

TENSORS = {
    "a": torch.arange(6.0).view(2, 3),
    "b": torch.tensor(True),
    "c": torch.tensor([1.5, torch.nan], dtype=torch.double),
    "d": torch.arange(6.0).view(2, 3).T,
}
METADATA = {"kind": "thing", "step": "7"}


@pytest.fixture
def file(tmp_path) -> Path:
    write_tensors(tmp_path / "deep" / "file", TENSORS, METADATA)
    return tmp_path / "deep" / "file"


def test_what_is_written_is_read(file):
    tensors, metadata = read_tensors(file, "thing")
    assert metadata == METADATA
    assert {name: (value.dtype, value.shape) for name, value in tensors.items()} == {
        name: (value.dtype, value.shape) for name, value in TENSORS.items()
    }
    for name, value in tensors.items():
        torch.testing.assert_close(value, TENSORS[name], atol=0, rtol=0, equal_nan=True)


def test_the_same_content_gives_the_same_bytes(file):
    before = file.read_bytes()
    write_tensors(file, dict(reversed(TENSORS.items())), dict(reversed(METADATA.items())))
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: f.write_bytes(f.read_bytes()[:-10]), "truncated or no safetensors file"),
        (lambda f: f.write_bytes(f.read_bytes()[:20]), "truncated or no safetensors file"),
        (lambda f: f.write_bytes(b""), "truncated or no safetensors file"),
        (lambda f: f.write_text("some notes\n" * 20), "truncated or no safetensors file"),
        (lambda f: flip(f, -1), "was changed after it was written"),
        (lambda f: f.write_bytes(f.read_bytes().replace(b'\\"7\\"', b'\\"8\\"')), "was changed after"),
        (lambda f: save_file({"a": torch.zeros(2)}, f), "is not a mnemoscope thing"),
        (lambda f: save_file({"a": torch.zeros(2)}, f, {"mnemoscope": '{"kind": "thing"}'}), "was changed after"),
        (lambda f: save_file({"a": torch.zeros(2)}, f, {"mnemoscope": "{"}), "was changed after"),
        (lambda f: write_tensors(f, TENSORS, {**METADATA, "kind": "other"}), "is not a mnemoscope thing"),
        (lambda f: f.unlink(), "does not exist"),
        (lambda f: (f.unlink(), f.mkdir()), "cannot be read"),
    ],
)
def test_damage_is_noticed_and_named(file, damage, message):
    damage(file)
    with pytest.raises(InputError, match=message) as error:
        read_tensors(file, "thing")
    assert str(file) in str(error.value)


@given(st.data())
def test_no_flipped_bit_goes_unnoticed(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("flip") / "file"
    numbers = {name: value for name, value in TENSORS.items() if value.dtype != torch.bool}  # a bool ignores 7 bits
    write_tensors(path, numbers, METADATA)
    flip(path, data.draw(st.integers(0, path.stat().st_size - 1)), data.draw(st.integers(0, 7)))
    with pytest.raises(InputError):
        read_tensors(path, "thing")


def test_the_digest_sees_names_types_shapes_bytes_and_metadata():
    a = torch.arange(6.0)
    variants = [
        ({"a": a}, {}),
        ({"b": a}, {}),
        ({"a": a.view(2, 3)}, {}),
        ({"a": a.int()}, {}),
        ({"a": a.view(torch.int32)}, {}),
        ({"a": -a}, {}),
        ({"a": a}, {"x": "1"}),
        ({"a": a}, {"x": "2"}),
        ({"a": a, "b": a}, {}),
    ]
    assert len({digest(*variant) for variant in variants}) == len(variants)


@pytest.mark.parametrize("method", ["write_bytes", "replace"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(file, monkeypatch, method):
    def fail(self, *_):
        if method == "write_bytes":
            self.open("wb").close()
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, method, fail)
    before = file.read_bytes()
    with pytest.raises(OSError, match="no space left"):
        write_atomically(file, b"new")
    with pytest.raises(OSError, match="no space left"):
        write_atomically(file.with_name("other"), b"new")
    assert list(file.parent.iterdir()) == [file]
    assert file.read_bytes() == before
