"""Checkpoints: the full state of a `HookedTransformer` with its configuration, as one safetensors file without pickle.

A compact checkpoint holds what training changed, in half precision; the rest is built anew from the specification. The
metadata carry a digest of everything in the file, so that damage is noticed.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import attention_mix, has_linear_attention, masked_token, position_kind, reads_vectors
from mnemoscope.models.attention import LINEAR, MASKED, MIX, RELATIVE
from mnemoscope.models.building import VECTORS, from_configuration
from mnemoscope.models.files import write_atomically
from mnemoscope.models.lens import HookedTransformer, HookedTransformerConfig

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


_KIND = "checkpoint"
_COMPACT = "compact-checkpoint"
KINDS = (_KIND, _COMPACT)
"""The kinds of files of weights: whole, or compact."""
_NOT_KEPT = {"device", "n_devices", "n_params", "seed", "tokenizer_name"}  # a tokenizer would be fetched


def save_checkpoint(model: HookedTransformer, path: Path, *, step: int = 0) -> None:
    """Write `model`, after `step` steps of training, to `path`. Any `HookedTransformer` will do."""
    config = {**configuration_of(model.cfg), **kind_of(model)}
    metadata = {"kind": _KIND, "step": str(step), "configuration": json.dumps(config)}
    write_tensors(path, model.state_dict(), metadata)


def load_checkpoint(path: Path, *, device: torch.device | str = "cpu", own: bool = False) -> HookedTransformer:
    """The model that was saved, in evaluation mode: its logits are identical to those of the saved one.

    `own` is as for `from_configuration`. Raises InputError where the file is missing, truncated, edited or foreign, its
    weights do not fit its configuration, or the device cannot be used.
    """
    tensors, metadata = read_tensors(Path(path), _KIND)
    with torch.random.fork_rng(devices=[]):
        model = from_configuration(json.loads(metadata["configuration"]), device=device, own=own)
    try:
        model.load_state_dict(tensors, strict=True)
    except RuntimeError as error:
        raise InputError(f"{path}: the weights do not fit the configuration: {error}") from None
    return model.eval()


def compact_checkpoint(model: HookedTransformer, untrained: HookedTransformer, *, step: int) -> bytes:
    """A checkpoint of the tensors that differ from those before training, float16."""
    before = untrained.state_dict()
    learned = {name: value.half() for name, value in model.state_dict().items() if not value.equal(before[name])}
    return tensor_bytes(learned, {"kind": _COMPACT, "step": str(step)})


def load_compact(path: Path, untrained: HookedTransformer) -> HookedTransformer:
    """The model of a compact checkpoint, in the precision of `untrained`, whose other tensors it takes over."""
    tensors, _ = read_tensors(path, _COMPACT)
    try:
        untrained.load_state_dict({**untrained.state_dict(), **tensors}, strict=True)
    except RuntimeError as error:
        raise InputError(f"{path}: the weights do not fit the specification: {error}") from None
    return untrained.eval()


def weights_digest(path: Path) -> tuple[int, str]:
    """The step of a checkpoint, whole or compact, and the SHA-256 of its tensors, which distinguishes models."""
    tensors, metadata = read_tensors(path, *KINDS)
    return int(metadata["step"]), digest(tensors, {})


def kind_of(model: HookedTransformer) -> dict[str, Any]:
    """The arguments of `from_configuration` that TransformerLens's configuration lacks, where they have no default."""
    kinds = {
        VECTORS: (reads_vectors(model), False),
        LINEAR: (has_linear_attention(model), False),
        MIX: (attention_mix(model), 1),
        MASKED: (masked_token(model), None),
        RELATIVE: (position_kind(model) == "relative", False),
    }
    return {name: value for name, (value, default) in kinds.items() if value != default}


def configuration_of(cfg: HookedTransformerConfig) -> dict[str, Any]:
    """The arguments of the configuration that differ from their defaults, as plain data."""
    kept = {}
    for field in dataclasses.fields(cfg):
        value = getattr(cfg, field.name)
        if field.name in _NOT_KEPT:
            continue
        if field.name == "dtype":
            value = str(value).removeprefix("torch.")
        elif hasattr(value, "item"):
            value = value.item()
        if value != field.default:
            kept[field.name] = value
    return kept
