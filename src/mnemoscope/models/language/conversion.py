"""Language models as `HookedTransformer`, or as `TransformerBridge`.

The weights are as they are: nothing is folded or centred, and the logits are those of Hugging Face's model to 1e-3 in
float32. TransformerLens 3's own functions convert configuration and weights, `families` where they are gone.
"""

import copy
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformer_lens.model_bridge import TransformerBridge

from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.models.building import quiet, usable_device
from mnemoscope.models.language import families
from mnemoscope.models.language.sources import PACKAGED, check_reachable, first_line, known_name, loaded, not_fetched
from mnemoscope.models.lens import HAS_HOOKED_TRANSFORMER, HookedTransformer, HookedTransformerConfig

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


def language_model(
    source: str | Path = PACKAGED,
    *,
    n_ctx: int | None = None,
    dtype: str = "float32",
    device: torch.device | str = "cpu",
    revision: str | None = None,
) -> HookedTransformer:
    """A language model with its tokenizer (`model.tokenizer`), in evaluation mode.

    Args:
        source: `smollm2` for the packaged model; a directory that `save_pretrained` wrote; a file `*.gguf`; a name on
            the Hugging Face hub, such as `gpt2` or `EleutherAI/pythia-160m`; or one of TransformerLens's own names.
        n_ctx: Longest sequence; none: that of the model, at most 1,024.
        dtype: Of the weights: float32, bfloat16, float16 or float64.
        device: Where the model goes.
        revision: Branch, tag or commit on the hub, such as `step1000` for a checkpoint of a Pythia.

    Raises:
        InputError: The source does not exist or cannot be fetched, nothing converts its architecture, or the device
            cannot be used.
    """
    number, device = _number(dtype), usable_device(device)
    if (name := known_name(source)) and name.startswith(_NO_TRANSFORMERS):
        return _of_transformerlens(name, n_ctx, number, device)
    theirs, tokenizer = loaded(source, number, revision)
    longest = _longest(theirs.config)
    n_ctx = min(longest, N_CTX) if n_ctx is None else n_ctx
    in_range("n_ctx", n_ctx, 1, longest)
    with quiet():
        try:
            config, state = _converted(theirs, {"device": str(device), "dtype": number, "n_ctx": n_ctx})
        except (NotImplementedError, ValueError) as error:
            kind = type(theirs).__name__
            refused = f"source {source}: nothing converts a {kind} to a HookedTransformer ({first_line(error)})"
            raise InputError(f"{refused}; bridged_language_model may take it as it is") from None
        if "pos_embed.W_pos" in state:
            state["pos_embed.W_pos"] = state["pos_embed.W_pos"][:n_ctx]
        model = HookedTransformer(config, tokenizer=tokenizer, move_to_device=False)
        model.load_and_process_state_dict(state, **_AS_THEY_ARE)
    return model.to(device, print_details=False).eval()


def bridged_language_model(
    source: str | Path = PACKAGED,
    *,
    dtype: str = "float32",
    device: torch.device | str = "cpu",
    revision: str | None = None,
) -> TransformerBridge:
    """The same model as the transformers library runs it, behind TransformerLens's hooks.

    Args:
        source: As for `language_model`, but for models that only TransformerLens reads.
        dtype: Of the weights.
        device: Where the model goes.
        revision: On the hub.

    Raises:
        InputError: As `language_model`.
    """
    number, device = _number(dtype), usable_device(device)
    theirs, tokenizer = loaded(source, number, revision)
    with _as_directory(theirs) as directory, quiet():
        try:
            found = TransformerBridge.boot_transformers(
                directory, hf_model=theirs, tokenizer=tokenizer, device=device, dtype=number
            )
        except (NotImplementedError, ValueError) as error:
            kind = type(theirs).__name__
            raise InputError(f"source {source}: TransformerLens bridges no {kind} ({first_line(error)})") from None
    return found.eval()


def named_language_model(source: str | Path, **options: Any) -> HookedTransformer:
    """A language model whose name may carry a revision, as in `EleutherAI/pythia-160m@step1000`.

    Args:
        source: As for `language_model`.
        options: Of `language_model`.

    Raises:
        InputError: As `language_model`.
    """
    name, _, revision = (str(source), "", "") if Path(source).exists() else str(source).partition("@")
    return language_model(name, revision=revision or None, **options)


def replicate_models(sources: Iterable[str | Path], **options: Any) -> Iterator[tuple[str, HookedTransformer]]:
    """Models of one family, such as seeds or checkpoints, each loaded when it is its turn.

    Args:
        sources: As for `language_model`; a name may carry a revision, as in `EleutherAI/pythia-160m@step1000`.
        options: Of `language_model`.

    Yields:
        The source as it was given, and the model.

    Raises:
        InputError: As `language_model`; or a model is of another architecture or size than the first.
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


def _converted(theirs: Any, chosen: dict[str, Any]) -> tuple[HookedTransformerConfig, dict[str, Tensor]]:
    """Configuration and weights, by TransformerLens's own functions where it has some.

    Args:
        theirs: A model of the transformers library.
        chosen: Device, precision and longest sequence.

    Raises:
        NotImplementedError, ValueError: Nothing converts the model.
    """
    if not HAS_HOOKED_TRANSFORMER:
        config = HookedTransformerConfig.from_dict({**families.configuration(theirs), **chosen})
        return config, families.weights(theirs, config)
    from transformer_lens import loading_from_pretrained as loading

    with _as_directory(theirs) as directory:
        config = loading.get_pretrained_model_config(directory, **chosen)
        return config, loading.get_pretrained_state_dict(directory, config, hf_model=theirs)


def _number(dtype: str) -> torch.dtype:
    one_of("dtype", dtype, DTYPES)
    return getattr(torch, dtype)


@contextmanager
def _as_directory(theirs: Any) -> Iterator[str]:
    """A directory with the configuration, for functions that take one.

    They judge architectures by words in its path, so that the user's own is not handed on.
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


def _of_transformerlens(name: str, n_ctx: int | None, dtype: torch.dtype, device: torch.device) -> HookedTransformer:
    """A model that only TransformerLens reads."""
    if n_ctx is not None:
        raise InputError(f"{name} is built for the sequences it was trained on; leave out n_ctx")
    if not HAS_HOOKED_TRANSFORMER:
        raise InputError(f'{name} is read by TransformerLens 3 only: pip install "transformer-lens<4"')
    check_reachable(name)
    with quiet():
        try:
            model = HookedTransformer.from_pretrained_no_processing(name, device=str(device), dtype=dtype)
        except (OSError, ValueError) as error:
            raise InputError(not_fetched(name, error)) from None
    return model.eval()
