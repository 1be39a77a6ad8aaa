"""Models that others published: safetensors files with the configuration of a `HookedTransformer` in their metadata.

Weights have TransformerLens's names. A system reads files of other authors in its part `originals`, which adds their
format to `ORIGINAL_FORMATS`. The package ships none of these files.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from mnemoscope.core.errors import InputError
from mnemoscope.core.guests import Registry
from mnemoscope.core.presets import PRESETS, preset
from mnemoscope.core.protocols import HookedModel, attention_mix, n_outputs, restricted_outputs
from mnemoscope.core.seeding import fixed_defaults
from mnemoscope.core.specification import RunSpec
from mnemoscope.models.attention import MIX
from mnemoscope.models.building import build
from mnemoscope.models.checkpoint import save_checkpoint
from mnemoscope.models.files import write_atomically
from mnemoscope.models.lens import HookedTransformer
from mnemoscope.models.run import Run, create_run
from mnemoscope.models.subjects import Subject

Content = tuple[dict[str, Any], dict[str, Tensor]]
"""Configuration and weights of a file."""
ORIGINAL_FORMATS: Registry[Callable[[dict[str, Any], dict[str, Tensor]], Content | None]]
ORIGINAL_FORMATS = Registry("format of originals", "originals")
"""By name, functions from the content of a file to the same under TransformerLens's names; None: another format."""
CONFIG = "config"
"""The entry of the metadata with the configuration, as JSON."""
NEAR = 0.05
"""Largest difference between a published share of the softmax in attention, which may be any, and that of a preset."""
_SAME = ("d_model", "n_heads", "n_layers", "d_head", "d_mlp", "act_fn", "attention_dir", MIX)
"""Fields of an architecture that a configuration names alike."""
_WRITTEN = ("d_vocab", "n_ctx", "attn_only", "normalization_type", *_SAME[:-1])
"""Fields of a `HookedTransformer` that a file has, but for the number of outputs."""


@fixed_defaults()
def load_original(path: Path | str, like: str | RunSpec) -> Subject:
    """The model of a file as a subject of analyses and claims, with the task of a preset or a run, and seed 0.

    Of a preset all recipes are tried, since their sizes differ. What a configuration does not say, such as the token to
    which no position attends, is that of the preset. Raises InputError where the file is missing or no such file, or
    its model has other inputs and outputs.

    >>> ms.models.load_original("palindrome.safetensors", "palindrome")  # doctest: +SKIP
    """
    spec, model = _load(Path(path), like)
    return Subject(model=model, task=spec.task, seed=0)


def original_run(path: Path, like: RunSpec, folder: Path) -> Run:
    """The same as a run with one checkpoint, in a new directory."""
    spec, model = _load(path, like)
    return write_run(model, spec, folder)


def write_run(model: HookedTransformer, spec: RunSpec, folder: Path | str) -> Run:
    """Write a model that no training made to a run directory with one checkpoint, which every command reads.

    Raises InputError where the directory holds a run with another specification.

    >>> ms.models.write_run(model, run.spec, "runs/by-hand")  # doctest: +SKIP
    """
    run, step = create_run(Path(folder), spec), spec.recipe.n_steps
    save_checkpoint(model, run.checkpoint_path(step), step=step)
    return run


def _load(path: Path, like: str | RunSpec) -> tuple[RunSpec, HookedTransformer]:
    config, weights = read_original(path)
    known = fitting_spec(config, like)
    if known is None:
        sizes = [{**_sizes(spec), MIX: spec.model.attention_mix} for spec in _specs(like)]
        given = {field: _completed(config).get(field) for field in sizes[0]}
        words = " or ".join(dict.fromkeys(map(str, sizes)))
        name = like if isinstance(like, str) else like.label
        raise InputError(f"{path} must have the sizes of {name}, {words}; got {given}; name another preset or file")
    model = replace(
        known.model,
        **{name: config[name] for name in _SAME if name in config},
        mlp=not config.get("attn_only", False),
        normalization=config.get("normalization_type") or "none",
    )
    task, outputs = known.task, restricted_outputs(known.task)
    built = build(model, d_vocab=task.d_vocab, n_ctx=task.n_ctx, d_vocab_out=outputs, seed=0, own=True)
    own = {name: tuple(weight.shape) for name, weight in built.named_parameters()}
    if own != {name: tuple(weight.shape) for name, weight in weights.items()}:
        raise InputError(f"{path}: names and shapes of the weights must be those of its configuration; got others")
    built.load_state_dict(weights, strict=False)  # masks and the like are no weights
    return replace(known, model=model), built.eval()


def read_original(path: Path) -> Content:
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
    content = json.loads(entry), weights
    converted = (ORIGINAL_FORMATS.get(name)(*content) for name in ORIGINAL_FORMATS.names())
    return next((found for found in converted if found is not None), content)


def write_original(model: HookedModel, path: Path | str) -> None:
    """Write any `HookedTransformer` to a file that `load_original` reads.

    >>> ms.models.write_original(model, "mine.safetensors")  # doctest: +SKIP
    """
    cfg: Any = model.cfg
    config = {name: getattr(cfg, name) for name in _WRITTEN}
    if cfg.d_vocab_out != cfg.d_vocab:
        config["d_vocab_out"] = cfg.d_vocab_out
    if attention_mix(model) < 1:
        config[MIX] = attention_mix(model)
    named: Any = model
    weights = {name: weight.detach().cpu().contiguous() for name, weight in named.named_parameters()}
    write_atomically(Path(path), save(weights, {CONFIG: json.dumps(config)}))


def fitting_spec(config: Mapping[str, Any], like: str | RunSpec) -> RunSpec | None:
    """A run of seed 0 with the sizes of a configuration: `like`, or its preset under another recipe; None: neither.

    Sizes are those of inputs and outputs, and the numbers of layers and heads. The shares of the softmax in attention
    may differ by `NEAR`.
    """
    given = _completed(config)
    for spec in _specs(like):
        near = abs(given[MIX] - spec.model.attention_mix) <= NEAR
        if near and all(given.get(name) == size for name, size in _sizes(spec).items()):
            return spec
    return None


def _completed(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with what it leaves out where a model has the default."""
    return {MIX: 1.0, **config, "d_vocab_out": config.get("d_vocab_out") or config.get("d_vocab")}


def _specs(like: str | RunSpec) -> Iterator[RunSpec]:
    """Runs of seed 0 that an original may be like."""
    if not isinstance(like, str):
        yield replace(like, seed=0, task=like.task.for_seed(0))
    name = like if isinstance(like, str) else like.preset
    if isinstance(like, str) or name in PRESETS.names():
        yield from (preset(name, recipe) for recipe in PRESETS.get(name).recipes)


def _sizes(spec: RunSpec) -> dict[str, Any]:
    """The fields of a configuration that an original must share with a run."""
    task, model = spec.task, spec.model
    return {
        "d_vocab": task.d_vocab,
        "n_ctx": task.n_ctx,
        "d_vocab_out": n_outputs(task),
        "n_layers": model.n_layers,
        "n_heads": model.n_heads,
    }
