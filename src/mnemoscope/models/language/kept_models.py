"""Converted language models in the user's cache, so that a second load needs neither the source model nor a conversion.

A file holds configuration, tokenizer and weights with a digest of everything; nothing is pickled. It lies in the folder
`language_models` of the user's cache (`files.user_cache`), where the zoo is unpacked too. Deleting the folder is
safe at any time, and an empty `MNEMOSCOPE_CACHE` keeps nothing. The file's name is a digest of the source's content, of
the options, and of all code that converts. After a change the model is converted anew, and the older file stays.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache

from mnemoscope.core.errors import InputError
from mnemoscope.models.building import quiet
from mnemoscope.models.checkpoint import configuration_of
from mnemoscope.models.files import user_cache, write_atomically
from mnemoscope.models.language.sources import known_name, local_path
from mnemoscope.models.lens import HookedTransformer, HookedTransformerConfig
from mnemoscope.models.tensor_files import read_tensors, tensor_bytes

LARGEST = 4_000_000_000
"""Bytes up to which a model is kept; larger ones are converted again each time."""
_KIND = "language-model"
_BESIDE_GGUF = ("*.json", "*.jinja", "*.model", "*.txt")
"""Files beside a GGUF file that the transformers library may read."""


def directory() -> Path | None:
    """The directory in which converted models are kept; None if nothing is kept."""
    if os.environ.get("MNEMOSCOPE_CACHE") == "":
        return None
    try:
        return user_cache() / "language_models"
    except RuntimeError:  # a user without a home
        return None


def place_of(source: str | Path, revision: str | None, **options: Any) -> Path | None:
    """The file of a model converted with `options`; None if nothing is kept, or the commit on the hub is unknown."""
    if (folder := directory()) is None:
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


def kept_model(place: Path) -> HookedTransformer | None:
    """The model kept in this file, on the CPU; None if the file is absent or damaged."""
    try:
        weights, metadata = read_tensors(place, _KIND)
    except InputError:  # absent, or damaged: the model is converted anew, and the file written again
        return None
    config = {**json.loads(metadata["configuration"]), "dtype": weights["embed.W_E"].dtype, "device": "cpu"}
    with quiet():
        model = HookedTransformer(HookedTransformerConfig.from_dict(config), move_to_device=False)
    parameters = dict(model.named_parameters())
    assert parameters.keys() == weights.keys(), f"{place} was written with other parameters"
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


def keep(model: HookedTransformer, place: Path) -> None:
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
