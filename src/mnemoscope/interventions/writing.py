"""Test whether a model uses the values that hooks return.

A HookedTransformer uses whatever a hook returns. A TransformerBridge runs the forward pass of another library: some of
its hook points only show a value, and a value written at `resid_mid` reaches the MLP but not the residual stream beside
it. A model whose hook points do not have the classic names as their own is therefore tested. Each kind of activation
that is written takes one test, a forward pass of three tokens and two rows a layer:

- NaN written in one row must reach the logits. On the way to the attention pattern it must change z instead, since some
  models take NaN for 0 there. At `resid_mid` it must reach the output of the MLP.
- Attention on the first key alone, written in the other row, must make z the same at all queries.
- A stream changed at `resid_mid`, plus the output of the MLP, must be the stream after the MLP.

Where the last of these fails, `writing` adds the change to the stream itself, if a second test finds that right. The
tests do not show whether values other than those written have their effect.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import HookedModel, without_hooks
from mnemoscope.core.runtime import memoize
from mnemoscope.core.site import ATTENTION, EMBEDDINGS, Kind, Site
from mnemoscope.interventions.recordings import check_no_nan

Hook = tuple[str, Callable[..., Any]]
Layers = frozenset[int | None]

_SCORES = re.compile(r"blocks\.\d+\.attn\.hook_attn_scores")
_MIDDLE = re.compile(r"blocks\.(\d+)\.hook_resid_mid")
_SEEN: dict[Kind, tuple[str, ...]] = {
    **dict.fromkeys(("q", "k", *ATTENTION), ("attn.hook_z",)),
    "resid_mid": ("hook_mlp_out", "hook_resid_mid", "hook_resid_post"),
}
_TOLERANCE = 0.05


def check_written(model: HookedModel, kind: Kind, layers: Collection[int | None]) -> None:
    """Refuse to write activations that the model does not use.

    `result` is written in the attention's output; the layer of embeddings is None. Refuses NaN in the logits too.
    """
    kind = "attn_out" if kind == "result" else kind
    if is_classic(model):
        return
    wrong = {*layers}
    for completed in (False, True) if kind == "resid_mid" else (False,):
        wrong = wrong and wrong & _ignored(model, kind, completed=completed)
    for layer in layers:
        if layer in wrong:
            site = Site(kind=kind, layer=layer)
            raise InputError(
                f"this {type(model).__name__} does not go on with what a hook returns at site {site} ({site.hook}), as "
                "trying it has shown; take another site, or load the same weights as a HookedTransformer"
            )


@contextmanager
def complete_hooks(model: HookedModel, hooks: Sequence[Hook]) -> Iterator[list[Hook]]:
    """Within the block, changes that these hooks make have their consequences on a bridge too.

    A change at `resid_mid` also reaches the residual stream: it is added to the stream after the MLP, before any hook
    on the model there. A query whose scores are all minus infinity attends to nothing. A HookedTransformer needs
    neither. Yields the hooks to put on the model.
    """
    found = [_MIDDLE.fullmatch(name) for name, _ in hooks]
    passed = bypassed_layers(model, {int(match[1]) for match in found if match})
    first, last = _empty_queries([] if is_classic(model) else [name for name, _ in hooks if _SCORES.fullmatch(name)])
    with ExitStack() as stack:
        own = [
            (name, _complete_hook(model, int(match[1]), hook, stack) if match and int(match[1]) in passed else hook)
            for match, (name, hook) in zip(found, hooks, strict=True)
        ]
        yield [*first, *own, *last]


def _empty_queries(scores: Collection[str]) -> tuple[list[Hook], list[Hook]]:
    """Hooks before and after others, by which queries whose `scores` are all minus infinity attend to nothing.

    Their softmax is NaN. A bridge hides keys by a very low number in place of minus infinity, and these would get all
    the weight once every other key is knocked out.
    """
    first, last = [], []
    for name in dict.fromkeys(scores):
        empty: list[Tensor] = []

        def see(activation: Tensor, hook: Any, empty: list[Tensor] = empty) -> Tensor:
            hidden = activation <= torch.finfo(activation.dtype).min / 2
            empty[:] = [hidden.all(-1, keepdim=True)]
            return activation.masked_fill(hidden, -torch.inf)

        def clear(activation: Tensor, hook: Any, empty: list[Tensor] = empty) -> Tensor:
            return activation.masked_fill(empty[0], 0)

        def clear_z(activation: Tensor, hook: Any, empty: list[Tensor] = empty) -> Tensor:
            return activation.masked_fill(empty[0].transpose(1, 2), 0)

        layer = name.removesuffix("attn_scores")
        first += [(f"{layer}pattern", clear), (f"{layer}z", clear_z)]
        last.append((name, see))
    return first, last


def bypassed_layers(model: HookedModel, layers: Collection[int | None]) -> Layers:
    """The layers whose `resid_mid` only the MLP reads, while the stream goes past it to `resid_post`."""
    return _ignored(model, "resid_mid", completed=False) & {*layers} if layers and not is_classic(model) else Layers()


def is_classic(model: HookedModel) -> bool:
    """True if the classic names are the hook points' own, as in a HookedTransformer, and not aliases or adapted."""
    point = model.hook_dict.get("blocks.0.hook_resid_pre")
    adapted = getattr(model, "is_adapted", False)
    return point is not None and point.name == "blocks.0.hook_resid_pre" and not adapted


def _complete_hook(model: HookedModel, layer: int, write: Callable[..., Any], stack: ExitStack) -> Callable[..., Any]:
    """Wrap the hook at `resid_mid` of a layer so that the stream gets its change too, until the stack is closed."""
    changes: list[Tensor] = []

    def change(activation: Tensor, hook: Any) -> Tensor | None:
        new = write(activation, hook=hook)
        changes[:] = [] if new is None else [new - activation]
        return new

    def add(module: nn.Module, inputs: Any, activation: Tensor) -> Tensor | None:
        return activation + changes.pop() if changes else None

    point = model.hook_dict[Site(kind="resid_post", layer=layer).hook]
    stack.callback(point.register_forward_hook(add, prepend=True).remove)
    return change


@memoize
@torch.no_grad()
def _ignored(model: HookedModel, kind: Kind, *, completed: bool) -> Layers:
    """Layers at which a written value has no effect or a wrong one, tested on the first call.

    Row 0 stays as it is; every layer has one row with a value of known effect, and one with NaN.
    """
    layers: list[int | None] = [None] if kind in EMBEDDINGS else list(range(model.cfg.n_layers))
    layers = [layer for layer in layers if Site(kind=kind, layer=layer).hook in model.hook_dict]
    rows = {layer: 1 + 2 * number for number, layer in enumerate(layers)}
    tokens = _tokens(model, 1 + 2 * len(layers))
    seen: dict[str, Tensor] = {}
    hooks: list[Hook] = [
        (Site(kind=kind, layer=layer).hook, partial(_write, kind=kind, row=row, n_rows=len(tokens)))
        for layer, row in rows.items()
    ]
    wanted = {f"blocks.{layer}.{end}" for layer in layers for end in _SEEN.get(kind, ())} & {*model.hook_dict}
    with without_hooks(model), ExitStack() as stack:
        if completed:
            hooks = [
                (name, _complete_hook(model, layer or 0, hook, stack))
                for layer, (name, hook) in zip(rows, hooks, strict=True)
            ]
        noted: list[Hook] = [(name, lambda x, hook, name=name: seen.update({name: x})) for name in wanted]
        logits = model.run_with_hooks(tokens, fwd_hooks=[*hooks, *noted])
    ignored = Layers(layer for layer, row in rows.items() if not _has_effect(kind, layer, row, seen, logits))
    check_no_nan(logits[0])
    return ignored


def _tokens(model: HookedModel, n_rows: int) -> Int[Tensor, "row pos"]:
    """Tokens from the middle of the vocabulary, where no special tokens are."""
    device = next(parameter for _, parameter in model.named_parameters()).device
    tokens = model.cfg.d_vocab // 2 + torch.arange(min(3, model.cfg.n_ctx), device=device)
    return (tokens % model.cfg.d_vocab).repeat(n_rows, 1)


def _write(activation: Tensor, hook: Any, *, kind: Kind, row: int, n_rows: int) -> Tensor:
    new = activation.expand(n_rows, *activation.shape[1:]).clone()
    if kind in ATTENTION:
        new[row] = 0 if kind == "pattern" else -torch.inf
        new[row, ..., 0] = 1 if kind == "pattern" else 0
    elif kind == "resid_mid":
        new[row] *= torch.linspace(2, 6, new.shape[-1], device=new.device, dtype=new.dtype)
    new[row + 1] = torch.nan
    return new


def _has_effect(kind: Kind, layer: int | None, row: int, seen: dict[str, Tensor], logits: Tensor) -> bool:
    names = [f"blocks.{layer}.{end}" for end in _SEEN.get(kind, ())]
    if any(name not in seen for name in names):
        return False
    first = seen[names[0]] if names else logits
    if not _differ(first[row + 1], first[0]):
        return False
    if kind in ATTENTION:
        return not _differ(first[row], first[row, :1])
    if kind == "resid_mid":
        added, middle, after = (seen[name] for name in names)
        change, missing = middle[row] - middle[0], middle[row] + added[row] - after[row]
        shares = (missing / change)[change != 0].float().abs()  # 1 where the stream passed by, 0 where it did not
        return bool(shares.median() < 0.5)
    return True


def _differ(one: Tensor, other: Tensor) -> bool:
    """True if two tensors differ by more than rounding; NaN differs from everything."""
    return not bool(((one - other).abs() <= _TOLERANCE * other.abs().max()).all())
