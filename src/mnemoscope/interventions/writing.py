"""Test whether a model uses the values that hooks return.

A HookedTransformer uses whatever a hook returns. A TransformerBridge runs the forward pass of another library: some of
its hook points only show a value, and a value written at `resid_mid` reaches the MLP but not the residual stream beside
it. A model whose hook points do not have the classic names as their own is therefore held to the laws of `reach`: two
passes of three tokens for each kind of activation that is written, one of them with two rows a layer. Where only the
change at `resid_mid` is missing in the stream after the block, it is added there.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn

from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import HookedModel, evaluation_mode, without_hooks
from mnemoscope.core.runtime import memoize
from mnemoscope.core.site import Kind, Site
from mnemoscope.interventions.comparison import DoesNotApplyError
from mnemoscope.interventions.reach import REACH
from mnemoscope.interventions.recordings import check_no_nan
from mnemoscope.interventions.subject import TestSubject

Hook = tuple[str, Callable[..., Any]]
Layers = frozenset[int | None]

_SCORES = re.compile(r"blocks\.\d+\.attn\.hook_attn_scores")
_MIDDLE = re.compile(r"blocks\.(\d+)\.hook_resid_mid")


def check_written(model: HookedModel, kind: Kind, layers: Collection[int | None]) -> None:
    """Refuse to write activations that the model does not use.

    `result` is written in the attention's output; the layer of embeddings is None. Refuses NaN in the logits too. A
    hook point that does not exist is left to whoever writes there.
    """
    kind = "attn_out" if kind == "result" else kind
    if is_classic(model):
        return
    wrong = {*layers}.difference(*_reached(model, kind))
    for layer in layers:
        site = Site(kind=kind, layer=layer)
        if layer in wrong and site.hook in model.hook_dict:
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
    return _reached(model, "resid_mid")[1] & {*layers} if layers and not is_classic(model) else Layers()


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
def _reached(model: HookedModel, kind: Kind) -> tuple[Layers, Layers]:
    """Layers at which the laws of reach hold, and those at which they do once the stream gets a change at `resid_mid`.

    Tried on the first call.
    """
    tokens, donors = (_tokens(model, offset) for offset in (0, 1))
    subject = TestSubject(model=_HooksAtOnce(model), tokens=tokens, donors=donors, max_layers=None)
    reached, completed = set[int | None](), set[int | None]()
    for law in REACH[kind]:
        with without_hooks(model), suppress(DoesNotApplyError):
            for trial in () if reached else law.trials(subject):
                check_no_nan(trial.logits[2])
                compared, layer = law.says(trial), trial.written.layer
                if compared and not any(each.breach(subject.tolerance) for each in compared):
                    reached.add(layer)
                elif kind == "resid_mid" and trial.is_completed(subject.tolerance):
                    completed.add(layer)
    return Layers(reached), Layers(completed)


class _HooksAtOnce:
    """A model that puts on its hooks by one filter: a bridge looks all of its names up for every hook by name."""

    def __init__(self, model: HookedModel):
        self._model, self.cfg, self.hook_dict = model, model.cfg, model.hook_dict

    def run_with_hooks(self, tokens: Tensor, fwd_hooks: Sequence[Hook]) -> Tensor:
        """The model's run; hooks at one point act in the order given."""
        by_point: dict[int, list[Callable[..., Any]]] = {}
        for name, hook in fwd_hooks:
            by_point.setdefault(id(self.hook_dict[name]), []).append(hook)

        def act(activation: Any, hook: Any) -> Any:
            for each in by_point[id(hook)]:
                new = each(activation, hook=hook)
                activation = activation if new is None else new
            return activation

        with evaluation_mode(self._model):
            return self._model.run_with_hooks(tokens, fwd_hooks=[({*dict(fwd_hooks)}.__contains__, act)])


def _tokens(model: HookedModel, offset: int) -> Tensor:
    """Tokens from the middle of the vocabulary, where no special tokens are."""
    device = next(parameter for _, parameter in model.named_parameters()).device
    tokens = model.cfg.d_vocab // 2 + offset + torch.arange(min(3, model.cfg.n_ctx), device=device)
    return (tokens % model.cfg.d_vocab)[None]
