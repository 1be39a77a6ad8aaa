"""Builds a `HookedTransformer` from an architecture, on a device of this machine."""

import copy
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.protocols import VectorTask, attention_mix, has_linear_attention, restricted_outputs
from mnemoscope.core.seeding import fixed_defaults, stream_seed
from mnemoscope.core.specification import ModelSpec, RunSpec
from mnemoscope.engine.architecture import MAX_ROTARY
from mnemoscope.models import lens
from mnemoscope.models.attention import LINEAR, MASKED, MIX, RELATIVE, set_attention
from mnemoscope.models.hooked import config as own_config
from mnemoscope.models.hooked import transformer as own_transformer
from mnemoscope.models.lens import HookedTransformer

VECTORS = "reads_vectors"
"""Key of a configuration: whether the model reads vectors."""
_ATTENTION = "blocks.*.attn.[Wb]_*"


@contextmanager
def silence_deprecation() -> Iterator[None]:
    """TransformerLens 3.9 announces the end of HookedTransformer in 4.0 at every construction."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


class ReadIn(nn.Module):
    """The input of a model that reads vectors, in place of the token embedding: x W_E, behind the same hook."""

    reads_vectors = True

    def __init__(self, weight: nn.Parameter):
        super().__init__()
        self.W_E = weight

    def forward(self, vectors: Float[Tensor, "batch pos d_input"]) -> Float[Tensor, "batch pos d_model"]:
        """The start of the residual stream."""
        return vectors @ self.W_E


class VectorPositions(nn.Module):
    """The positional embedding of a model that reads vectors."""

    def __init__(self, weight: nn.Parameter):
        super().__init__()
        self.W_pos = weight

    def forward(self, vectors: Float[Tensor, "batch pos d_input"], *_: Any) -> Float[Tensor, "batch pos d_model"]:
        """The same for every sequence."""
        return self.W_pos[: vectors.shape[1]].expand(len(vectors), -1, -1).clone()


def configuration(
    spec: ModelSpec, *, d_vocab: int, n_ctx: int, d_vocab_out: int | None = None, d_output: int | None = None
) -> dict[str, Any]:
    """Arguments of `from_configuration` for an architecture on a task of that size.

    `d_vocab` is the number of tokens, or the width of the input; `n_ctx` the longest input. There are `d_vocab_out`
    outputs: classes, or the first tokens (none: all tokens). With `d_output` the model reads vectors and gives some of
    that width.
    """
    outputs = {} if d_vocab_out is None else {"d_vocab_out": d_vocab_out}
    vectors = {} if d_output is None else {"d_vocab_out": d_output, VECTORS: True}
    both = {} if spec.attention_dir == "causal" else {"attention_dir": spec.attention_dir}
    linear = {} if spec.softmax else {"use_attn_scale": False, LINEAR: True}
    mixed = {} if spec.attention_mix == 1 else {MIX: spec.attention_mix}
    turned = {} if spec.position_kind != "rotary" else {"positional_embedding_type": "rotary"}
    if turned:
        in_range("task.n_ctx, with model.position_kind rotary,", n_ctx, 1, MAX_ROTARY)
    padded = {} if spec.masked is None else {MASKED: _masked_token(spec.masked, d_vocab, d_output)}
    relative = {RELATIVE: True} if spec.position_kind == "relative" else {}
    return {
        "n_layers": spec.n_layers,
        "d_model": spec.d_model,
        "n_heads": spec.n_heads,
        "d_head": spec.head_width,
        "d_mlp": spec.mlp_width if spec.mlp else None,
        "attn_only": not spec.mlp,
        "act_fn": spec.act_fn,
        "normalization_type": None if spec.normalization == "none" else spec.normalization,
        "n_ctx": n_ctx,
        "d_vocab": d_vocab,
        "dtype": spec.dtype,
        **outputs,
        **vectors,
        **both,
        **linear,
        **mixed,
        **turned,
        **padded,
        **relative,
    }


def _masked_token(masked: int, d_vocab: int, d_output: int | None) -> int:
    """The number of the masked token; raises InputError where the task has no such token."""
    if d_output is not None:
        raise InputError(f"model.masked is a token, and this task has vectors; got {masked}; leave it out")
    in_range("model.masked", masked, -d_vocab, d_vocab - 1)
    return masked % d_vocab


@fixed_defaults()
def from_configuration(
    config: Mapping[str, Any], *, device: torch.device | str = "cpu", own: bool = False
) -> HookedTransformer:
    """The model of those arguments, with TransformerLens's initialisation drawn from the global generator.

    `config` holds arguments of `HookedTransformerConfig`. With `reads_vectors` the model reads vectors of width
    `d_vocab` and gives some of width `d_vocab_out`. With `linear_attention` its attention has no softmax, with
    `attention_mix` it is mixed, with `relative_positions` keys carry vectors of distances, and no position attends to
    the token `masked_token` (`models.attention`). All hooks and weights keep their names. `own` gives the package's own
    class, which has the same weights, hooks and numbers and needs no import of TransformerLens. Otherwise the class is
    that of TransformerLens where the installed line has one.
    """
    arguments = {**config, "dtype": getattr(torch, config["dtype"]), "device": str(usable_device(device))}
    vectors = arguments.pop(VECTORS, False)
    kind = {
        "linear": arguments.pop(LINEAR, False),
        "mix": arguments.pop(MIX, 1.0),
        "masked": arguments.pop(MASKED, None),
        "relative": arguments.pop(RELATIVE, False),
    }
    kinds: Any = (own_transformer, own_config) if own else (lens, lens)
    with silence_deprecation():
        settings = kinds[1].HookedTransformerConfig.from_dict(arguments)
        model = kinds[0].HookedTransformer(settings, move_to_device=True)
    if vectors:
        weights = dict(model.named_parameters())
        model.add_module("embed", ReadIn(weights["embed.W_E"]))
        if "pos_embed.W_pos" in weights:
            model.add_module("pos_embed", VectorPositions(weights["pos_embed.W_pos"]))
        model.setup()
    if kind != {"linear": False, "mix": 1, "masked": None, "relative": False}:
        set_attention(model, **kind)
    return model


def build_untrained(spec: RunSpec, *, device: torch.device | str = "cpu", own: bool = False) -> HookedTransformer:
    """The model that a run starts from; `own` as for `from_configuration`."""
    task = spec.task
    d_output = task.d_output if isinstance(task, VectorTask) else None
    return build(
        spec.model,
        d_vocab=task.d_vocab,
        n_ctx=task.n_ctx,
        d_vocab_out=restricted_outputs(task),
        d_output=d_output,
        seed=spec.seed,
        device=device,
        own=own,
    )


@fixed_defaults()
def build(
    spec: ModelSpec,
    *,
    d_vocab: int,
    n_ctx: int,
    seed: int,
    d_vocab_out: int | None = None,
    d_output: int | None = None,
    device: torch.device | str = "cpu",
    own: bool = False,
) -> HookedTransformer:
    """A freshly initialised model. The global generator is left as found.

    Parts that `spec` switches off exist as parameters and are exactly zero. The weights come from the seed's stream
    `initialisation`, the same on every device. Sizes are as for `configuration`, `own` as for `from_configuration`:
    `d_vocab` tokens, with `d_vocab_out` classes or first tokens that can be predicted, or vectors of width `d_vocab` to
    vectors of width `d_output`. Raises InputError where the device cannot be used.
    """
    device = usable_device(device)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(stream_seed(seed, "initialisation"))
        sizes = {"d_vocab": d_vocab, "n_ctx": n_ctx, "d_vocab_out": d_vocab_out, "d_output": d_output}
        model = from_configuration(configuration(spec, **sizes), own=own)
    named = dict(model.named_parameters())
    with torch.no_grad():
        if spec.position_kind == "relative":
            draws = torch.Generator().manual_seed(stream_seed(seed, "relative positions"))
            for name, value in named.items():
                if name.endswith(".W_rel"):
                    value.normal_(0, model.cfg.initializer_range, generator=draws)
        if spec.initialisation != "gpt2":
            draws = torch.Generator().manual_seed(stream_seed(seed, spec.initialisation))
            for name, value in named.items():
                _INITIALISED[spec.initialisation](name, value, draws, spec)
        if spec.silent is not None:
            named["embed.W_E"][spec.silent] = 0
        for name in matching_names(zero_patterns(spec), named):
            named[name].zero_()
    return model.to(device, print_details=False)


def _init_memory(name: str, value: Tensor, draws: torch.Generator, _: ModelSpec) -> None:
    """Set a parameter as the simplified transformer of Bietti et al. 2023 starts with it."""
    if name.endswith("W_Q"):
        value.copy_(torch.eye(value.shape[-1]))
    elif name in ("embed.W_E", "pos_embed.W_pos"):
        value.normal_(generator=draws)
    else:
        value.uniform_(-1, 1, generator=draws).div_(math.sqrt(value.shape[-2] if value.ndim > 1 else 1))


def _init_normal(name: str, value: Tensor, draws: torch.Generator, _: ModelSpec) -> None:
    """Set a parameter as the models of Nichani et al. 2025 start with it: of unit norm, roughly, in what it reads."""
    width = value.shape[0 if name.endswith((".W_in", ".W_out", ".W_U")) else -1]
    value.normal_(generator=draws).div_(math.sqrt(width))


def _init_one_hot(name: str, value: Tensor, draws: torch.Generator, spec: ModelSpec) -> None:
    """Set a parameter so that every token has a separate dimension and attention starts at almost nothing."""
    if name.endswith((".W_E", ".W_U", ".W_K", ".W_V")):
        value.copy_(torch.eye(*value.shape[-2:]))
    elif spec.initial_size is None:
        value.fill_(1e-5)
    else:
        value.normal_(generator=draws).mul_(spec.initial_size)


def _init_scaled(name: str, value: Tensor, _: torch.Generator, spec: ModelSpec) -> None:
    """Scale what writes to the residual stream as Radford et al. 2019 do: by one over the root of how often that is."""
    if name.endswith((".W_O", ".W_out")):
        value.div_(math.sqrt(spec.n_layers * (2 if spec.mlp else 1)))


def _init_by_width(name: str, value: Tensor, draws: torch.Generator, spec: ModelSpec) -> None:
    """Set a weight as the models of Zhong et al. 2023 start with it; biases of the MLP stay at zero."""
    kind = name.rpartition(".")[2]
    if kind.startswith("W_"):
        width = {"W_out": spec.mlp_width, "W_U": value.shape[-1]}.get(kind, spec.d_model)
        value.normal_(generator=draws).div_(math.sqrt(width))


def _init_small(name: str, value: Tensor, draws: torch.Generator, _: ModelSpec) -> None:
    """Set a weight as the models of Edelman et al. 2024 start with it; biases and gains stay as they are."""
    if name.rpartition(".")[2].startswith("W_"):
        value.normal_(0, 0.01 if name.endswith((".W_O", ".W_out")) else 0.02, generator=draws)


_INITIALISED = {
    "memories": _init_memory,
    "normal": _init_normal,
    "one-hot": _init_one_hot,
    "gpt2-scaled": _init_scaled,
    "by-width": _init_by_width,
    "small": _init_small,
}


def zero_patterns(spec: ModelSpec) -> tuple[str, ...]:
    """Patterns of the parameters that the architecture holds at zero, in training too."""
    biases = {
        "gpt2": (),
        "gpt2-scaled": (),
        "memories": ("*.b_*",),
        "normal": ("*.b_[KVOU]", "*.b_in", "*.b_out", *(("*.b_Q",) if spec.silent is None else ())),
    }
    biases["one-hot"] = biases["normal"]
    biases["by-width"] = biases["small"] = ("*.b_[QKVOU]",)
    return (
        *(() if spec.attention else (_ATTENTION,)),
        *(() if spec.positions and spec.position_kind == "absolute" else ("pos_embed.W_pos",)),
        *(f"blocks.{layer}.mlp.*" for layer in range(spec.first_mlp if spec.mlp else 0)),
        *biases[spec.initialisation],
    )


def held_patterns(spec: ModelSpec) -> tuple[str, ...]:
    """Patterns of the parameters that training leaves as they are: those at zero, and frozen embeddings.

    Of a one-hot model W_Q, W_K and W_V too: queries ask with their bias, and one matrix says what is written.
    """
    frozen = ("embed.*", "pos_embed.*", "unembed.*") if spec.embeddings == "frozen" else ()
    identities = ("*.W_[QKV]",) if spec.initialisation == "one-hot" else ()
    return (*zero_patterns(spec), *frozen, *identities)


def matching_names(patterns: Iterable[str], names: Iterable[str]) -> frozenset[str]:
    """The names that match one of the shell-style patterns."""
    patterns = list(patterns)
    return frozenset(name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns))


def detached_parameters(model: HookedTransformer) -> dict[str, Tensor]:
    """Detached copies of the model's parameters, without its buffers."""
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def fold_normalisation(model: HookedTransformer) -> HookedTransformer:
    """A copy whose normalisations only centre and divide; the original stays as it is.

    Gains and biases of the normalisations are folded into the weights that read. The weights that write are centred,
    and value biases are moved into the output bias of their layer (TransformerLens's `process_weights_`, which works in
    float32). Logits stay the same, because the unembedding is not centred over the vocabulary. Zero ablation of a head
    does not: its value bias is no longer removed with it.

    Raises InputError where the model has no normalisation with a gain to fold, or its patterns do not add up to one,
    so that value biases cannot be moved.
    """
    if getattr(model, "dictionaries", ()):
        raise InputError("model must have no dictionaries to be folded; fold it first, then give it some")
    if has_linear_attention(model) or attention_mix(model) < 1:
        raise InputError(
            "model must have patterns that add up to one to be folded; its attention is linear, or mixed with a "
            "constant; use the model as it is"
        )
    if model.cfg.normalization_type not in ("LN", "RMS"):
        raise InputError(
            f"model must have a normalisation with weights (LN or RMS) to be folded; got "
            f"{model.cfg.normalization_type!r}; use the model as it is"
        )
    result = copy.deepcopy(model)
    result.reset_hooks(including_permanent=True)
    result.process_weights_(center_unembed=False)
    return result


def usable_device(device: torch.device | str) -> torch.device:
    """The device of that name; raises InputError where torch cannot use it on this machine."""
    try:
        found = torch.device(device)
    except RuntimeError:
        found = None
    if found is not None and (found.type == "cpu" or str(found) in _accelerators()):
        return found
    allowed = ", ".join(["cpu", *_accelerators()])
    raise InputError(f"device must be one that torch can use on this machine: {allowed}; got {str(device)!r}")


def _accelerators() -> list[str]:
    """Such as cuda, cuda:0 and cuda:1; asking starts no context on the device."""
    kind = torch.accelerator.current_accelerator()
    if kind is None or not torch.accelerator.is_available():
        return []
    return [kind.type, *(f"{kind.type}:{index}" for index in range(torch.accelerator.device_count()))]
