"""Models that others published: safetensors files with the configuration of a `HookedTransformer` in their metadata.

Weights have TransformerLens's names. The package ships none of these files.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from mnemoscope import PRESETS, InputError, Subject
from mnemoscope.core import one_of
from mnemoscope.models import build

CONFIG = "config"
"""The entry of the metadata with the configuration, as JSON."""
_SAME = ("d_model", "n_heads", "n_layers", "d_head", "d_mlp", "act_fn", "attention_dir")
"""Fields of an architecture that a configuration names alike."""


def load_original(path: Path | str, preset: str) -> Subject:
    """The model of a file as a subject of claims, with the task of a preset and seed 0.

    What a configuration does not say, such as the token to which no position attends, is that of the preset. Raises
    InputError where the file is missing or no such file, or its model has other inputs and outputs than the preset's.
    """
    path, known = Path(path), PRESETS.get(preset)
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
    config: dict[str, Any] = json.loads(entry)
    n_classes = len(getattr(known.task, "classes", ())) or getattr(known.task, "d_vocab_out", None)
    sizes: dict[str, Any] = {"d_vocab": known.task.d_vocab, "n_ctx": known.task.n_ctx, "d_vocab_out": n_classes}
    for name, size in sizes.items():
        one_of(f"{name} of {path}, a model of {preset}", config.get(name), (size,))
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
