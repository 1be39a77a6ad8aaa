"""Weights of the models that others published, which are no part of the project: tests skip where they are absent."""

import os
from pathlib import Path

import pytest

VARIABLE = "MNEMOSCOPE_ORIGINALS"
FOLDER = Path(os.environ.get(VARIABLE, Path(__file__).parents[2] / "shared" / "outside"))


def original_file(name: str) -> Path:
    """The file `name`.safetensors; skips the test where there is none."""
    path = FOLDER / f"{name}.safetensors"
    if not path.is_file():
        pytest.skip(f"no weights of the original {name}: {VARIABLE} names the folder with {path.name}")
    return path
