"""Files of tensors: moved into place when complete, without pickle, damage noticed."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from mnemoscope.core.errors import InputError
from mnemoscope.models.files import write_atomically

_ENTRY = "mnemoscope"  # the metadata as one JSON entry: safetensors writes several entries in random order


def digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """SHA-256 over names, types, shapes and bytes of the tensors and over the metadata."""
    state = hashlib.sha256(json.dumps(dict(sorted(metadata.items()))).encode())
    for name in sorted(tensors):
        value = tensors[name].detach().cpu().contiguous()
        state.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        state.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return state.hexdigest()


def tensor_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """A safetensors file whose metadata hold a digest of everything in it; equal content gives equal bytes."""
    clean = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    entry = json.dumps({**metadata, "digest": digest(clean, metadata)}, sort_keys=True)
    return save(clean, {_ENTRY: entry})


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write the file of `tensor_bytes`."""
    write_atomically(path, tensor_bytes(tensors, metadata))


def read_tensors(path: Path, *kinds: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors, copied, and the metadata of a file of `tensor_bytes` whose metadata name one of these kinds.

    Raises InputError where the file is missing, truncated, of another program, of another kind, or was changed after it
    was written.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = json.loads((file.metadata() or {}).get(_ENTRY, "{}"))
            if metadata.get("kind") not in kinds:
                raise InputError(f"{path} is not a mnemoscope {' or '.join(kinds)}: its metadata do not say so")
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (no mapping)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    except SafetensorError as error:
        raise InputError(f"{path} is truncated or no safetensors file ({error}); restore it or train again") from None
    except json.JSONDecodeError:
        metadata, tensors = {}, {}
    if metadata.pop("digest", None) != digest(tensors, metadata):
        raise InputError(
            f"{path} was changed after it was written (its digest does not match); restore it or train again"
        )
    return tensors, metadata
