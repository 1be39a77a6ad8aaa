"""Models that others published: safetensors files with the configuration of a `HookedTransformer` in their metadata.

Weights have TransformerLens's names. The package ships none of these files.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import PRESETS
from mnemoscope.core.protocols import restricted_outputs
from mnemoscope.core.seeding import fixed_defaults
from mnemoscope.models.building import build
from mnemoscope.models.subjects import Subject

CONFIG = "config"
"""The entry of the metadata with the configuration, as JSON."""
_SAME = ("d_model", "n_heads", "n_layers", "d_head", "d_mlp", "act_fn", "attention_dir")
"""Fields of an architecture that a configuration names alike."""


@fixed_defaults()
def load_original(path: Path | str, preset: str) -> Subject:
    """The model of a file as a subject of analyses and claims, with the task of a preset and seed 0.

    What a configuration does not say, such as the token to which no position attends, is that of the preset. Raises
    InputError where the file is missing or no such file, or its model has other inputs and outputs than the preset's.

    >>> ms.models.load_original("palindrome.safetensors", "palindrome")  # doctest: +SKIP
    """
    path, known = Path(path), PRESETS.get(preset)
    config, weights = read_original(path)
    sizes = task_sizes(preset)
    if not fits_preset(config, preset):
        given = {name: config.get(name) for name in sizes}
        raise InputError(f"{path} must have the sizes of {preset}, {sizes}; got {given}; name another preset or file")
    spec = replace(
        known.model,
        **{name: config[name] for name in _SAME if name in config},
        mlp=not config.get("attn_only", False),
        normalization=config.get("normalization_type") or "none",
    )
    model = build(
        spec, d_vocab=sizes["d_vocab"], n_ctx=sizes["n_ctx"], d_vocab_out=sizes["d_vocab_out"], seed=0, own=True
    )
    own = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    if own != {name: tuple(weight.shape) for name, weight in weights.items()}:
        raise InputError(f"{path}: names and shapes of the weights must be those of its configuration; got others")
    model.load_state_dict(weights, strict=False)  # masks and the like are no weights
    return Subject(model=model.eval(), task=known.task, seed=0)


def read_original(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Configuration and weights of a file; raises InputError where it is missing or no such file.

    >>> config, weights = ms.models.read_original("palindrome.safetensors")  # doctest: +SKIP
    """
    try:
        with safe_open(path, framework="pt") as file:
            entry = (file.metadata() or {}).get(CONFIG)
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; name the file with the weights of the original") from None
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} cannot be read as safetensors: {error}") from None
    if entry is None:
        raise InputError(f"{path} must have its configuration, as JSON, in the entry {CONFIG!r} of its metadata")
    return json.loads(entry), weights


def task_sizes(preset: str) -> dict[str, Any]:
    """The fields of a configuration that follow from the task of a preset."""
    task = PRESETS.get(preset).task
    return {"d_vocab": task.d_vocab, "n_ctx": task.n_ctx, "d_vocab_out": restricted_outputs(task)}


def fits_preset(config: Mapping[str, Any], preset: str) -> bool:
    """True if a model of the configuration has the inputs and outputs of the preset, and its layers and heads."""
    spec, sizes = PRESETS.get(preset).model, task_sizes(preset)
    wanted = {**sizes, "n_layers": spec.n_layers, "n_heads": spec.n_heads}
    return all(config.get(name) == size for name, size in wanted.items())
