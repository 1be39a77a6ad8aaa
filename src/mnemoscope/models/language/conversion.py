"""Language models as `HookedTransformer`, or as `TransformerBridge`.

The weights are as they are: nothing is folded or centred. TransformerLens 3's own functions convert configuration and
weights; `families` does it where they are gone or convert wrongly. A conversion reads some fields of a configuration
and ignores the others; a model that uses an ignored field would load without a word and compute something else. So
every converted model runs beside its source on a few tokens, and is refused unless log-probabilities agree to 1e-3 in
float32. This does not show a difference that only other tokens or longer sequences would bring out.
"""

import copy
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn
from transformer_lens.model_bridge import TransformerBridge

from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.seeding import fixed_defaults
from mnemoscope.models.building import silence_deprecation, usable_device
from mnemoscope.models.language import families
from mnemoscope.models.language.sources import (
    PACKAGED,
    cached_file,
    check_reachable,
    describe_error,
    fetch_error,
    known_name,
    loaded,
    read_cached_model,
    write_cached_model,
)
from mnemoscope.models.lens import HAS_HOOKED_TRANSFORMER, HookedTransformer, HookedTransformerConfig

TOLERANCE = 1e-3
"""Largest difference of log-probabilities in float32 and float64: what the documentation promises."""
LARGE = 2_000_000_000
"""Parameters from which a model in half precision is not widened for the comparison: two copies take 16 GB."""
_LENGTH = 24
_BEYOND = 16
"""Tokens past the point from which a model attends differently."""
_TURNING_POINTS = ("window", "position", "context", "ctx", "chunk", "length")
"""Words in the names of fields that say from which length on a model does something else."""


def compared_dtype(theirs: Any, dtype: torch.dtype) -> torch.dtype:
    """The precision in which a model is compared before it gets its own.

    Half precision rounds logits by more than wrong conversions change them, and widening loses nothing. So models of
    half precision are compared in float32 unless they are large.
    """
    if torch.finfo(dtype).bits >= 32 or sum(value.numel() for value in theirs.parameters()) > LARGE:
        return dtype
    return torch.float32


def tolerance(dtype: torch.dtype) -> float:
    """The largest difference that counts as rounding: 1e-3, or 64 units of the last place at one in half precision.

    Logits of half precision lie between 16 and 64 and are rounded to a 256th (bfloat16) or 2,048th of that in each of
    two models. The values that they are computed from are rounded too.
    """
    return TOLERANCE if torch.finfo(dtype).bits >= 32 else 64 * torch.finfo(dtype).eps


@torch.no_grad()
def largest_difference(theirs: nn.Module, model: nn.Module, tokens: Int[Tensor, "batch pos"]) -> float:
    """The largest difference of log-probabilities over all positions and tokens; NaN if one of them is NaN."""
    worst = torch.zeros(())
    for row in tokens.split(1):  # one at a time: a long one has gigabytes of logits
        expected = theirs(row).logits
        found = model(row)[..., : expected.shape[-1]]
        differences = found.float().log_softmax(-1) - expected.float().log_softmax(-1)
        worst = torch.maximum(worst, differences.abs().amax())  # keeps NaN
    return worst.item()


def tokens_to_compare(theirs: Any, tokenizer: Any, n_ctx: int) -> Int[Tensor, "batch pos"]:
    """Two sequences of random tokens, none of them special; one where it is long.

    They have 24 tokens, or go 16 beyond the longest window, or similar length, below `n_ctx` in the configuration. A
    window that `n_ctx` does not exceed, such as Mistral's 4,096 at the default of 1,024, never closes: no test needed.
    """
    points = [_LENGTH - _BEYOND, *_turning_points(theirs.config.to_dict(), n_ctx)]
    length = min(n_ctx, max(points) + _BEYOND)
    n_tokens = min(theirs.config.vocab_size, len(tokenizer))
    special = {number for number in tokenizer.all_special_ids if number is not None}
    ordinary = torch.tensor([number for number in range(n_tokens) if number not in special] or [0])
    drawn = torch.randint(
        len(ordinary), (2 if length <= 512 else 1, length), generator=torch.Generator().manual_seed(0)
    )
    return ordinary[drawn]


def _turning_points(config: Mapping[Any, Any], n_ctx: int) -> Iterator[int]:
    """Lengths below `n_ctx` in a configuration and its parts."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _turning_points(value, n_ctx)
        elif isinstance(value, int) and 0 < value < n_ctx and any(word in str(name) for word in _TURNING_POINTS):
            yield value


def non_default_fields(theirs: Any) -> str:
    """Fields of a configuration that differ from the defaults of its model type, in words."""
    aside = ("architectures", "transformers_version", "dtype", "model_type", "_name_or_path")
    usual, found = type(theirs.config)().to_dict(), theirs.config.to_dict()
    changed = {name: value for name, value in found.items() if name not in aside and value != usual.get(name)}
    return ", ".join(f"{name}={value}" for name, value in changed.items() if not name.endswith("token_id"))


DTYPES = ("float32", "bfloat16", "float16", "float64")
N_CTX = 1024
"""Tokens that a model is built for unless another number is asked for: every layer keeps a mask of n_ctx squared."""
_NO_TRANSFORMERS = ("NeelNanda", "ArthurConmy", "Baidicoot")
"""Owners of models on the hub that only TransformerLens reads."""
_AS_THEY_ARE: dict[str, bool] = {
    "fold_ln": False,
    "center_writing_weights": False,
    "center_unembed": False,
    "fold_value_biases": False,
}


@fixed_defaults()
def language_model(
    source: str | Path = PACKAGED,
    *,
    n_ctx: int | None = None,
    dtype: str = "float32",
    device: torch.device | str = "cpu",
    revision: str | None = None,
) -> HookedTransformer:
    """A language model with its tokenizer (`model.tokenizer`), in evaluation mode.

    Its log-probabilities on a few random tokens must agree with those of the source to 1e-3, in float32 if the model is
    of half precision. Models of half precision with more than 2 billion parameters are compared as they are, to what
    rounding does: .5 in bfloat16, .06 in float16. Models that only TransformerLens reads have nothing to compare with.

    A converted model of up to 4 GB is kept, and loaded from there as long as its source and the conversion stay the
    same. It lies in the folder `language_models` of the directory that the environment variable MNEMOSCOPE_CACHE names,
    by default `~/.cache/mnemoscope`. Delete the folder to clear it; an empty MNEMOSCOPE_CACHE keeps nothing.

    Args:
        source: `smollm2` for the packaged model; a directory that `save_pretrained` wrote; a file `*.gguf`; a name on
            the Hugging Face hub, such as `gpt2` or `EleutherAI/pythia-160m`; or one of TransformerLens's own names.
        n_ctx: Longest sequence, in tokens; None: that of the model, at most 1,024. If it exceeds a sliding window, the
            comparison goes beyond the window too.
        dtype: Precision of the weights: float32, bfloat16, float16 or float64.
        device: Device that the model goes to.
        revision: Branch, tag or commit on the hub, such as `step1000` for a checkpoint of a Pythia.

    Raises:
        InputError: The source does not exist or cannot be fetched; or no conversion gives a model that computes the
            same; or `n_ctx` or `dtype` is not allowed; or the device cannot be used.

    >>> ms.language_model("smollm2").cfg.n_layers
    30
    """
    number, device = _number(dtype), usable_device(device)
    if (name := known_name(source)) and name.startswith(_NO_TRANSFORMERS):
        return _load_by_transformerlens(name, n_ctx, number, device)
    asked = {"dtype": dtype, "n_ctx": n_ctx}
    place = cached_file(source, revision, **asked)
    model = read_cached_model(place) if place else None
    if model is None:
        model = _converted(source, number, n_ctx, revision)
        if place := place or cached_file(source, revision, **asked):  # now the hub's commit is known
            write_cached_model(model, place)
    return model.to(device, print_details=False).eval()


@fixed_defaults()
def bridged_language_model(
    source: str | Path = PACKAGED,
    *,
    dtype: str = "float32",
    device: torch.device | str = "cpu",
    revision: str | None = None,
) -> TransformerBridge:
    """The same model as the transformers library runs it, behind TransformerLens's hooks.

    Arguments and errors are those of `language_model`; models that only TransformerLens reads, or for which it has no
    bridge, are refused.
    """
    number, device = _number(dtype), usable_device(device)
    theirs, tokenizer = loaded(source, number, revision)
    with _configuration_directory(theirs) as directory, silence_deprecation():
        try:
            found = TransformerBridge.boot_transformers(
                directory, hf_model=theirs, tokenizer=tokenizer, device=device, dtype=number
            )
        except Exception as error:
            kind = type(theirs).__name__
            raise InputError(
                f"source {source}: TransformerLens bridges no such {kind} ({describe_error(error)})"
            ) from error
    return found.eval()


def named_language_model(source: str | Path, **options: Any) -> HookedTransformer:
    """A language model whose name may carry a revision, as in `EleutherAI/pythia-160m@step1000`.

    Other arguments and errors are those of `language_model`.
    """
    name, _, revision = (str(source), "", "") if Path(source).exists() else str(source).partition("@")
    return language_model(name, revision=revision or None, **options)


def replicate_models(sources: Iterable[str | Path], **options: Any) -> Iterator[tuple[str, HookedTransformer]]:
    """Models of one family, such as seeds or checkpoints; each is loaded when its turn comes.

    `sources` are as for `named_language_model`, `options` are further arguments of `language_model`, and so are errors.
    A model of another architecture or size than the first is refused. Yields the source as it was given, and the model.
    """
    first: tuple[str, tuple[object, ...]] | None = None
    for source in sources:
        model = named_language_model(source, **options)
        cfg = model.cfg
        sizes = (cfg.original_architecture, cfg.n_layers, cfg.d_model, cfg.n_heads, cfg.d_vocab)
        first = first or (str(source), sizes)
        if sizes != first[1]:
            raise InputError(
                f"replicates must be alike; {source} has (architecture, layers, d_model, heads, tokens) = {sizes}, "
                f"{first[0]} has {first[1]}"
            )
        yield str(source), model


def _converted(source: str | Path, dtype: torch.dtype, n_ctx: int | None, revision: str | None) -> HookedTransformer:
    """Load and convert a model on the CPU; raises as `language_model` does."""
    theirs, tokenizer = loaded(source, dtype, revision)
    longest = _longest(theirs.config)
    n_ctx = min(longest, N_CTX) if n_ctx is None else n_ctx
    in_range("n_ctx", n_ctx, 1, longest)
    return _convert_and_compare(source, theirs, tokenizer, n_ctx).to(dtype, print_details=False)


def _convert_and_compare(source: str | Path, theirs: Any, tokenizer: Any, n_ctx: int) -> HookedTransformer:
    """The first conversion whose log-probabilities agree with the source's; raises InputError if none does."""
    dtype = compared_dtype(theirs, theirs.dtype)
    nn.Module.to(theirs, dtype)
    tokens, allowed = tokens_to_compare(theirs, tokenizer, n_ctx), tolerance(dtype)
    chosen: dict[str, Any] = {"device": "cpu", "dtype": dtype, "n_ctx": n_ctx}
    converts = [_convert_by_transformerlens] * HAS_HOOKED_TRANSFORMER + [_convert_by_families]
    if HAS_HOOKED_TRANSFORMER and type(theirs).__name__ not in families.MODEL_CLASSES:
        converts.remove(_convert_by_families)
    refusals: list[str] = []
    cause: Exception | None = None
    for convert in converts:
        try:
            with silence_deprecation():
                model = _built(*convert(theirs, chosen), tokenizer)
                difference = largest_difference(theirs, model, tokens)
        except Exception as error:  # foreign code, on a configuration that it was not written for
            cause = cause or error
            refusals.append(describe_error(error))
            continue
        if difference <= allowed:
            return model
        refusals.insert(0, f"log-probabilities differ by up to {difference:.2g}, {allowed:.1g} allowed")
    raise InputError(
        f"source {source}: nothing converts a {type(theirs).__name__} to a HookedTransformer with this configuration "
        f"({'; '.join(dict.fromkeys(refusals))}): {non_default_fields(theirs)}; bridged_language_model may take it "
        "as it is"
    ) from cause


def _built(config: HookedTransformerConfig, state: dict[str, Tensor], tokenizer: Any) -> HookedTransformer:
    """The model with these weights, in evaluation mode."""
    if "pos_embed.W_pos" in state:
        state["pos_embed.W_pos"] = state["pos_embed.W_pos"][: config.n_ctx]
    model = HookedTransformer(config, tokenizer=tokenizer, move_to_device=False)
    model.load_and_process_state_dict(state, **_AS_THEY_ARE)
    return model.eval()


def _convert_by_families(theirs: Any, chosen: Mapping[str, Any]) -> tuple[HookedTransformerConfig, dict[str, Tensor]]:
    """Configuration and weights by our own conversions."""
    config = HookedTransformerConfig.from_dict({**families.convert_configuration(theirs), **chosen})
    return config, families.convert_weights(theirs, config)


def _convert_by_transformerlens(
    theirs: Any, chosen: Mapping[str, Any]
) -> tuple[HookedTransformerConfig, dict[str, Tensor]]:
    """Configuration and weights by TransformerLens 3's functions, which use one epsilon for every GPT-J."""
    from transformer_lens import loading_from_pretrained as loading

    with _configuration_directory(theirs) as directory:
        config = loading.get_pretrained_model_config(directory, **chosen)
        config.eps = getattr(theirs.config, "layer_norm_epsilon", config.eps)
        return config, loading.get_pretrained_state_dict(directory, config, hf_model=theirs)


def _number(dtype: str) -> torch.dtype:
    one_of("dtype", dtype, DTYPES)
    return getattr(torch, dtype)


@contextmanager
def _configuration_directory(theirs: Any) -> Iterator[str]:
    """A temporary directory with the configuration, for functions that take a directory.

    They judge architectures by words in the path, so the user's own path is not handed on.
    """
    config = copy.deepcopy(theirs.config)
    config.architectures = [type(theirs).__name__]
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # the weights of a GGUF file have been expanded
    if not hasattr(config, "n_ctx"):
        config.n_ctx = _longest(config)  # the configuration of GPT-2 lost it in version 5 of transformers
    with tempfile.TemporaryDirectory(prefix="model-") as directory:
        config.save_pretrained(directory)
        yield directory


def _longest(config: Any) -> int:
    """The longest sequence that a model of the transformers library takes."""
    names = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
    return next((int(value) for name in names if (value := getattr(config, name, None))), N_CTX)


def _load_by_transformerlens(
    name: str, n_ctx: int | None, dtype: torch.dtype, device: torch.device
) -> HookedTransformer:
    """A model that only TransformerLens reads."""
    if n_ctx is not None:
        raise InputError(f"{name} is built for the sequences it was trained on; leave out n_ctx")
    if not HAS_HOOKED_TRANSFORMER:
        raise InputError(f'{name} is read by TransformerLens 3 only: pip install "transformer-lens<4"')
    check_reachable(name)
    with silence_deprecation():
        try:
            model = HookedTransformer.from_pretrained_no_processing(name, device=str(device), dtype=dtype)
        except (OSError, ValueError) as error:
            raise InputError(fetch_error(name, error)) from None
    return model.eval()
