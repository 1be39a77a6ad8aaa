"""Finds the residual stream of a foreign module, and who writes to it, in one pass over a few tokens.

Blocks are the submodules of the longest list of which each reads what the one before has written. `attn_out` and
`mlp_out` are the two submodules of a block that add up to what it adds to the stream, the outermost such pair; where no
pair does, as with scaled branches, the block has neither.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from inspect import signature
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import evaluation_mode

_TOLERANCE = 1e-4
"""Largest difference, as a share of the stream, between what a block adds and what its two parts add up to."""
_N_TOKENS = 5
NAMES = ("embed", "blocks", "attn_out", "mlp_out")


@dataclass(frozen=True)
class Place:
    """The first tensor that a submodule takes, or gives."""

    module: str
    side: Literal["input", "output"]


@dataclass(frozen=True, kw_only=True)
class AdaptedConfig:
    """Sizes, with TransformerLens's names; kinds of parts are unknown."""

    n_layers: int
    n_heads: int
    d_model: int
    d_head: int
    d_mlp: int
    d_vocab: int
    d_vocab_out: int
    n_ctx: int
    attention_dir: str
    dtype: torch.dtype
    original_architecture: str
    attn_only: bool = False
    parallel_attn_mlp: bool = False
    normalization_type: str = "unknown"
    positional_embedding_type: str = "unknown"
    act_fn: str = "unknown"
    eps: float = 0.0
    use_attn_result: bool = False


def first_tensor(given: Any) -> Tensor | None:
    """The tensor that a module takes or gives, or the first of several; None if there is none."""
    given = getattr(given, "logits", given)
    given = given[0] if isinstance(given, tuple | list) and given else given
    return given if isinstance(given, Tensor) else None


def pass_options(module: nn.Module, mask: Tensor | None = None) -> dict[str, Any]:
    """Further arguments of a pass; positions count what the mask shows, which few modules do by themselves."""
    cached = hasattr(getattr(module, "config", None), "use_cache")
    options: dict[str, Any] = {"use_cache": False} if cached else {}
    if mask is not None:
        options["attention_mask"] = mask
        if "position_ids" in signature(module.forward).parameters:
            options["position_ids"] = (mask.long().cumsum(-1) - 1).clamp(min=0)
    return options


def find_places(module: nn.Module, names: Mapping[str, str]) -> tuple[dict[str, Place], AdaptedConfig]:
    """The place of each hook point but the logits, in the order of a pass, and the sizes of a module."""
    modules = dict(module.named_modules())
    if wrong := [f"{part}={name}" for part, name in names.items() if part not in NAMES]:
        raise InputError(f"names must name {', '.join(NAMES)}; got {', '.join(wrong)}")
    seen, logits, width = _tried(module)
    embed = names.get("embed") or _embedding(module, modules)
    blocks = _blocks(modules, seen, names.get("blocks"))
    places = {"hook_embed": Place(embed, "output")}
    for layer, block in enumerate(blocks):
        parts = {kind: name for kind, name in names.items() if kind.endswith("_out")} or _parts(block, seen)
        _check_parts(block, parts, seen)
        order = sorted(parts, key=lambda kind: list(seen).index(Place(f"{block}.{parts[kind]}", "output")))
        own = {"resid_pre": Place(block, "input")}
        own |= {kind: Place(f"{block}.{parts[kind]}", "output") for kind in order}
        own["resid_post"] = Place(block, "output")
        places |= {f"blocks.{layer}.hook_{kind}": place for kind, place in own.items()}
    stream = seen[places["blocks.0.hook_resid_pre"]]
    return places, _sizes(module, modules[embed], stream, logits, len(blocks), causal=width)


@torch.no_grad()
def _tried(module: nn.Module) -> tuple[dict[Place, Tensor], Tensor, bool]:
    """Everything that submodules take and give on a few tokens, in order; the logits; True if attention is causal."""
    device = next(module.parameters()).device
    config = getattr(module, "config", None)
    d_vocab = getattr(config, "vocab_size", None) or min(
        part.num_embeddings for part in module.modules() if isinstance(part, nn.Embedding)
    )
    tokens = (d_vocab // 2 + torch.arange(_N_TOKENS, device=device).repeat(2, 1)) % d_vocab
    tokens[1, -1] = (tokens[1, -1] + 1) % d_vocab
    seen: dict[Place, Tensor] = {}

    def keep(place: Place, *given: Any) -> None:
        named = given[-1] if place.side == "input" else {}
        values = (given[1] or tuple(named.values())) if place.side == "input" else given[-1]
        if (x := first_tensor(values)) is not None and place not in seen:
            seen[place] = x.clone()

    with evaluation_mode(module), ExitStack() as stack:
        for name, part in module.named_modules():
            before = part.register_forward_pre_hook(partial(keep, Place(name, "input")), with_kwargs=True)
            after = part.register_forward_hook(partial(keep, Place(name, "output")))
            stack.callback(before.remove)
            stack.callback(after.remove)
        logits = first_tensor(module(tokens, **pass_options(module)))
    if logits is None or logits.shape[:2] != tokens.shape:
        raise InputError(
            "module must turn tokens `batch pos` into logits `batch pos d_vocab`; wrap it in one that does"
        )
    return seen, logits, bool(torch.allclose(logits[0, :-1], logits[1, :-1], atol=1e-5))


def _embedding(module: Any, modules: Mapping[str, nn.Module]) -> str:
    """The name of the token embedding."""
    given = module.get_input_embeddings() if hasattr(module, "get_input_embeddings") else None
    found = [name for name, part in modules.items() if (part is given if given else isinstance(part, nn.Embedding))]
    if not found:
        raise InputError("names must name embed, the token embedding: the module has no torch.nn.Embedding")
    return found[0]


def _blocks(modules: Mapping[str, nn.Module], seen: Mapping[Place, Tensor], named: str | None) -> list[str]:
    """The names of the blocks, in order."""
    lists = [name for name, part in modules.items() if isinstance(part, nn.ModuleList | nn.Sequential) and len(part)]
    if named is not None and named not in modules:
        raise InputError(f"names['blocks'] must be one of: {', '.join(lists)}; got {named!r}")
    found = [
        [f"{name}.{number}" for number, _ in modules[name].named_children()] for name in ([named] if named else lists)
    ]
    chains = [chain for chain in found if _follow_one_another(chain, seen)]
    if not chains:
        raise InputError(
            "no list of submodules is found in which each reads what the one before has written; name one by "
            f"names={{'blocks': ...}}, from: {', '.join(lists) or 'none'}"
        )
    return max(chains, key=len)


def _follow_one_another(chain: list[str], seen: Mapping[Place, Tensor]) -> bool:
    ends = [(seen.get(Place(name, "input")), seen.get(Place(name, "output"))) for name in chain]
    if any(x is None or y is None or x.ndim != 3 or x.shape != y.shape for x, y in ends):
        return False
    return all(torch.equal(before, after) for (_, before), (after, _) in pairwise(ends))  # pyright: ignore


def _parts(block: str, seen: Mapping[Place, Tensor]) -> dict[str, str]:
    """The names within a block of the two submodules that add up to what it adds; empty if there are none."""
    stream = seen[Place(block, "input")]
    inside = [
        place.module.removeprefix(f"{block}.")
        for place, x in seen.items()
        if place.side == "output"
        and place.module.startswith(f"{block}.")
        and (x.shape[-1], x.numel()) == (stream.shape[-1], stream.numel())
    ]
    pairs = [(one, other) for i, one in enumerate(inside) for other in inside[i + 1 :]]
    for one, other in sorted(pairs, key=lambda pair: (pair[0] + pair[1]).count(".")):
        mlp_first = "mlp" in one and "mlp" not in other
        first, second = (other, one) if mlp_first else (one, other)
        parts = {"attn_out": first, "mlp_out": second}
        if _missed(block, parts, seen) <= _TOLERANCE:
            return parts
    return {}


def _missed(block: str, parts: Mapping[str, str], seen: Mapping[Place, Tensor]) -> float:
    """The share of the stream by which parts miss what a block adds."""
    before, after = seen[Place(block, "input")], seen[Place(block, "output")]
    total = before + sum(seen[Place(f"{block}.{name}", "output")].view_as(before) for name in parts.values())
    return float((total - after).abs().max() / after.abs().max())


def _check_parts(block: str, parts: Mapping[str, str], seen: Mapping[Place, Tensor]) -> None:
    """Refuse parts that do not exist or do not add up."""
    for kind, name in parts.items():
        if Place(f"{block}.{name}", "output") not in seen:
            raise InputError(f"names[{kind!r}] must be a submodule of every block; {block} has no {name} that runs")
    if parts and (missed := _missed(block, parts, seen)) > _TOLERANCE:
        both = " and ".join(parts.values())
        raise InputError(f"names must name parts that add up; {both} of {block} miss the stream by {missed:.2g} of it")


def _sizes(
    module: nn.Module, embed: Any, stream: Tensor, logits: Tensor, n_layers: int, *, causal: bool
) -> AdaptedConfig:
    config, d_model = getattr(module, "config", None), stream.shape[-1]
    n_heads = getattr(config, "num_attention_heads", None) or 1
    return AdaptedConfig(
        n_layers=n_layers,
        n_heads=n_heads,
        d_model=d_model,
        d_head=getattr(config, "head_dim", None) or max(1, d_model // n_heads),
        d_mlp=getattr(config, "intermediate_size", None) or 4 * d_model,
        d_vocab=embed.weight.shape[0],
        d_vocab_out=logits.shape[-1],
        n_ctx=getattr(config, "max_position_embeddings", None) or 1024,
        attention_dir="causal" if causal else "bidirectional",
        dtype=logits.dtype,
        original_architecture=type(module).__name__,
    )
