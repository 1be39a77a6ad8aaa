"""Faults that are put into a good model: a wrapper that changes hooks, inputs or outputs, and permanent hooks.

Each returns a new model; the good one stays as it is.
"""

import copy
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from mnemoscope.hookcheck.law import Mutant
from mnemoscope.interventions.subject import hook_name

Hook = Callable[..., Any]
Change = Callable[[Tensor], Tensor]


class Faulty:
    """A model that changes hooks before they are put on, and inputs and outputs of every run.

    `hook` takes the name of a hook point and a hook function, and gives the function that is put on. All else is the
    good model's.
    """

    def __init__(
        self,
        good: Any,
        *,
        hook: Callable[[str, Hook], Hook] = lambda name, hook: hook,
        inputs: Change = lambda inputs: inputs,
        output: Change = lambda logits: logits,
    ):
        self.good, self._hook, self._inputs, self._output = good, hook, inputs, output

    def __getattr__(self, name: str) -> Any:
        if name == "good":  # while a copy is made
            raise AttributeError(name)
        return getattr(self.good, name)

    def __call__(self, inputs: Tensor, **options: Any) -> Tensor:
        """The good model's, with changed inputs and output."""
        return self._output(self.good(self._inputs(inputs), **options))

    def hooks(self, fwd_hooks: Sequence[tuple[str, Hook]] = (), **options: Any) -> AbstractContextManager[Any]:
        """The good model's, with changed hooks."""
        changed = [(name, self._hook(name, hook)) for name, hook in fwd_hooks]
        return self.good.hooks(fwd_hooks=changed, **options)

    def run_with_hooks(self, inputs: Tensor, fwd_hooks: Sequence[tuple[Any, Hook]] = (), **options: Any) -> Tensor:
        """The good model's, with changed hooks, inputs and output."""
        named = [(name, hook) for names, hook in fwd_hooks for name in self._named(names)]
        changed = [(name, self._hook(name, hook)) for name, hook in named]
        return self._output(self.good.run_with_hooks(self._inputs(inputs), fwd_hooks=changed, **options))

    def run_with_cache(self, inputs: Tensor, names_filter: Any = None, **options: Any) -> tuple[Tensor, Any]:
        """Activations as changed hooks see them."""
        seen: dict[str, Tensor] = {}
        hooks = [
            (name, lambda x, hook, name=name: seen.update({name: x.detach()})) for name in self._named(names_filter)
        ]
        return self.run_with_hooks(inputs, fwd_hooks=hooks, **options), seen

    def _named(self, names: Any) -> list[str]:
        """Hook points by a name, a list of names or a filter; None: all."""
        if isinstance(names, str):
            return [names]
        wanted = (lambda name: names is None or name in names) if not callable(names) else names
        return [name for name in self.good.hook_dict if wanted(name)]


def is_of(kind: str, name: str) -> bool:
    """True if a hook point is of this kind, in whatever layer; a name outside of blocks is a kind of its own."""
    return hook_name(kind, None) == name or re.sub(r"^blocks\.\d+\.", "blocks.0.", name) == hook_name(kind, 0)


def writes_are(kind: str, change: Callable[[Tensor, Tensor], Tensor | None]) -> Mutant:
    """A model that puts `change(old, new)` in the place of what a hook writes at points of this kind."""

    def altered(name: str, hook: Hook) -> Hook:
        def write(activation: Tensor, hook: Any, *, inner: Hook = hook) -> Tensor | None:
            new = inner(activation, hook=hook)
            return new if new is None else change(activation, new)

        return write if is_of(kind, name) else hook

    return lambda good: Faulty(good, hook=altered)


def ignores_writes(kind: str) -> Mutant:
    """A model whose hook points of this kind only show their activation."""
    return writes_are(kind, lambda old, new: None)


def shows(kind: str, change: Change) -> Mutant:
    """A model whose hooks at points of this kind see a changed activation."""

    def altered(name: str, hook: Hook) -> Hook:
        return (
            (lambda activation, hook, inner=hook: inner(change(activation), hook=hook)) if is_of(kind, name) else hook
        )

    return lambda good: Faulty(good, hook=altered)


def always(kind: str, change: Change) -> Mutant:
    """A model in which a permanent hook changes the activations of this kind."""

    def make(good: Any) -> Any:
        model = copy.deepcopy(good)
        for name, point in model.hook_dict.items():
            if is_of(kind, name):
                point.register_forward_hook(lambda module, given, output: change(output))
        return model

    return make


def rolled(x: Tensor, dim: int = 2) -> Tensor:
    """Moved by one along a dimension."""
    return torch.roll(x, 1, dim)
