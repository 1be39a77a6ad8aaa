"""Checkpoints: the full state of a `HookedTransformer` with its configuration, as one safetensors file.

A compact checkpoint holds what training changed, in half precision; the rest is built anew from the specification.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch

from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import has_linear_attention, reads_vectors
from mnemoscope.models.building import LINEAR, VECTORS, from_configuration
from mnemoscope.models.lens import HookedTransformer, HookedTransformerConfig
from mnemoscope.models.tensor_files import digest, read_tensors, tensor_bytes, write_tensors

_KIND = "checkpoint"
_COMPACT = "compact-checkpoint"
KINDS = (_KIND, _COMPACT)
"""The kinds of files of weights: whole, or compact."""
_NOT_KEPT = {"device", "n_devices", "n_params", "seed", "tokenizer_name"}  # a tokenizer would be fetched


def save_checkpoint(model: HookedTransformer, path: Path, *, step: int = 0) -> None:
    """Write `model`, after `step` steps of training, to `path`. Any `HookedTransformer` will do."""
    kinds = {VECTORS: reads_vectors(model), LINEAR: has_linear_attention(model)}
    config = {**configuration_of(model.cfg), **{name: True for name, of_kind in kinds.items() if of_kind}}
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
