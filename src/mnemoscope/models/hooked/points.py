"""Hook points, and a model whose activations can be seen and replaced there, with TransformerLens's interface.

TransformerLens's own classes would do, but importing it takes twice as long as everything else together. Commands on
our own runs need nothing else of it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, partialmethod
from typing import Any, Literal

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from mnemoscope.engine.changes import Changes

Direction = Literal["fwd", "bwd"]
_DIRECTIONS: tuple[Direction, ...] = ("fwd", "bwd")
Name = str | Callable[[str], bool]
"""One hook point, or those for whose name a function is true."""
Names = Name | Sequence[str] | None
"""One hook point, several, those for whose name a function is true, or all."""
_BY_HEAD = ("hook_q", "hook_k", "hook_v", "hook_z", "hook_result")


@dataclass(frozen=True)
class LensHandle:
    """A hook on a point; its parts have TransformerLens's names."""

    hook: RemovableHandle
    is_permanent: bool
    context_level: int | None
    user_hook: Callable[..., Any]


class HookPoint(nn.Module):
    """The identity, which calls functions with the activation that passes, or with its gradient.

    A function is called as `hook(activation, hook=point)`; its result replaces the activation, unless it is None.
    """

    def __init__(self):
        super().__init__()
        self.fwd_hooks: list[LensHandle] = []
        self.bwd_hooks: list[LensHandle] = []
        self.ctx: dict[str, Any] = {}
        self.name: str | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Give back the activation."""
        return x

    def add_hook(
        self,
        hook: Callable[..., Any],
        dir: Direction = "fwd",
        is_permanent: bool = False,
        level: int | None = None,
        prepend: bool = False,
    ) -> None:
        """Call a function from now on; with `prepend`, before the functions that are already there."""

        def forwards(module: nn.Module, given: Any, activation: Tensor) -> Any:
            return hook(activation, hook=self)

        def backwards(module: nn.Module, given: Any, gradients: Any) -> Any:
            result = hook(gradients[0], hook=self)
            return result if result is None or isinstance(result, tuple) else (result,)

        if dir == "fwd":
            handle, found = self.register_forward_hook(forwards, prepend=prepend), self.fwd_hooks
        else:
            handle, found = self.register_full_backward_hook(backwards, prepend=prepend), self.bwd_hooks
        found.insert(0 if prepend else len(found), LensHandle(handle, is_permanent, level, hook))

    def add_perma_hook(self, hook: Callable[..., Any], dir: Direction = "fwd") -> None:
        """Call a function until a reset that includes permanent hooks."""
        self.add_hook(hook, dir, is_permanent=True)

    def _hooks(self, dir: Direction | Literal["both"]) -> list[list[LensHandle]]:
        both = zip(_DIRECTIONS, (self.fwd_hooks, self.bwd_hooks), strict=True)
        return [found for direction, found in both if dir in (direction, "both")]

    def has_hooks(self, dir: Direction | Literal["both"] = "both") -> bool:
        """True if functions are called here."""
        return any(self._hooks(dir))

    def remove_hooks(
        self, dir: Direction | Literal["both"] = "fwd", including_permanent: bool = False, level: int | None = None
    ) -> None:
        """Remove the hooks of a context level (None: all); permanent hooks only with `including_permanent`."""
        for found in self._hooks(dir):
            for handle in [*found]:
                of_level = not handle.is_permanent and (level is None or handle.context_level == level)
                if including_permanent or of_level:
                    handle.hook.remove()
                    found.remove(handle)

    def clear_context(self) -> None:
        """Clear `ctx`, in which hooks keep values."""
        self.ctx = {}

    def layer(self) -> int:
        """Number of the block that the point is in."""
        return int(str(self.name).split(".")[1])


def passing(module: nn.Module, within: str = "") -> Changes:
    """A module's own hook points as the engine's changes; `within` is the prefix of the engine's names."""
    points = module.named_children()
    return Changes({within + name: point for name, point in points if isinstance(point, HookPoint)})


class HookedModule(nn.Module):
    """A module with hook points. A subclass calls `setup` after it has made its parts."""

    def __init__(self):
        super().__init__()
        self.is_caching, self.context_level = False, 0
        self.mod_dict: dict[str, nn.Module] = {}
        self.hook_dict: dict[str, HookPoint] = {}

    def setup(self) -> None:
        """Name all parts."""
        self.mod_dict = {name: module for name, module in self.named_modules() if name}
        self.hook_dict = {name: point for name, point in self.mod_dict.items() if isinstance(point, HookPoint)}
        named: Any = self.mod_dict
        for name, module in named.items():
            module.name = name

    def hook_points(self) -> Any:
        """All hook points."""
        return self.hook_dict.values()

    def check_hooks_to_add(self, hook_point: HookPoint, hook_point_name: str, *_: Any, **__: Any) -> None:
        """Refuse hooks that would never be called; a subclass says which."""

    def add_hook(self, name: Name, hook: Callable[..., Any], *how: Any, **named: Any) -> None:
        """Call a function, until hooks are reset, at one hook point or at those for whose name a function is true.

        Further arguments are as for `HookPoint.add_hook`.
        """
        for own in self._named(name):
            self.check_hooks_to_add(self.hook_dict[own], own, hook, *how, **named)
            self.hook_dict[own].add_hook(hook, *how, **named)

    def add_perma_hook(self, name: Name, hook: Callable[..., Any], dir: Direction = "fwd") -> None:
        """As `add_hook`, until a reset that includes permanent hooks."""
        self.add_hook(name, hook, dir, is_permanent=True)

    def _named(self, names: Names) -> list[str]:
        if isinstance(names, str):
            if names not in self.hook_dict:
                raise KeyError(names)
            return [names]
        return [name for name in self.hook_dict if names is None or (names(name) if callable(names) else name in names)]

    def reset_hooks(
        self,
        clear_contexts: bool = True,
        direction: Direction | Literal["both"] = "both",
        including_permanent: bool = False,
        level: int | None = None,
    ) -> None:
        """Remove hooks, as `HookPoint.remove_hooks` does, and clear the values that they kept."""
        for point in self.hook_points():
            if clear_contexts:
                point.clear_context()
            point.remove_hooks(direction, including_permanent, level)
        self.is_caching = False

    remove_all_hook_fns = partialmethod(reset_hooks, False)

    @contextmanager
    def hooks(
        self,
        fwd_hooks: Sequence[tuple[Name, Callable[..., Any]]] = (),
        bwd_hooks: Sequence[tuple[Name, Callable[..., Any]]] = (),
        reset_hooks_end: bool = True,
        clear_contexts: bool = False,
    ) -> Iterator[Any]:
        """A context in which functions are called at hook points, given by names or functions of names.

        Forward hooks get activations, backward hooks gradients. With `reset_hooks_end` they are removed at the end, and
        with `clear_contexts` the values that they kept are cleared.
        """
        try:
            self.context_level += 1
            for direction, given in zip(_DIRECTIONS, (fwd_hooks, bwd_hooks), strict=True):
                for names, hook in given:
                    for name in self._named(names):
                        self.hook_dict[name].add_hook(hook, direction, level=self.context_level)
            yield self
        finally:
            if reset_hooks_end:
                self.reset_hooks(clear_contexts, level=self.context_level)
            self.context_level -= 1

    def run_with_hooks(
        self,
        *args: Any,
        fwd_hooks: Sequence[tuple[Name, Callable[..., Any]]] = (),
        bwd_hooks: Sequence[tuple[Name, Callable[..., Any]]] = (),
        reset_hooks_end: bool = True,
        clear_contexts: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Run the model with these hooks; arguments as for `hooks`. Backward hooks need `reset_hooks_end=False`."""
        with self.hooks(fwd_hooks, bwd_hooks, reset_hooks_end, clear_contexts):
            return self.forward(*args, **kwargs)

    def get_caching_hooks(
        self,
        names_filter: Names = None,
        incl_bwd: bool = False,
        device: Any = None,
        remove_batch_dim: bool = False,
        cache: dict[str, Tensor] | None = None,
        pos_slice: Any = None,
    ) -> tuple[dict[str, Tensor], list[Any], list[Any]]:
        """A dictionary, and the hooks that put activations and gradients (`..._grad`) into it.

        `names_filter` chooses hook points (None: all), and `incl_bwd` keeps gradients too. Values are kept on `device`
        (None: their own). `remove_batch_dim` drops the batch axis, which must have one entry. `pos_slice` chooses
        positions as TransformerLens's `Slice` takes them.
        """
        cache, self.is_caching = {} if cache is None else cache, True

        def keep(activation: Tensor, hook: Any, end: str = "") -> None:
            kept = activation.detach().to(device)
            kept, axis = kept[0] if remove_batch_dim else kept, -3 if hook.name.endswith(_BY_HEAD) else -2
            cache[hook.name + end] = kept if pos_slice is None else _positions(kept, pos_slice, axis)

        names = self._named(names_filter)
        gradients = [(name, partial(keep, end="_grad")) for name in names] if incl_bwd else []
        return cache, [(name, keep) for name in names], gradients

    def add_caching_hooks(self, names_filter: Names = None, **options: Any) -> dict[str, Tensor]:
        """Put activations into a dictionary at every run until hooks are reset; options as `get_caching_hooks`."""
        cache, *both = self.get_caching_hooks(names_filter, **options)
        for direction, hooks in zip(_DIRECTIONS, both, strict=True):
            for name, hook in hooks:
                self.hook_dict[name].add_hook(hook, direction)
        return cache

    def run_with_cache(
        self,
        *args: Any,
        names_filter: Names = None,
        device: Any = None,
        remove_batch_dim: bool = False,
        incl_bwd: bool = False,
        reset_hooks_end: bool = True,
        clear_contexts: bool = False,
        pos_slice: Any = None,
        **kwargs: Any,
    ) -> tuple[Any, Any]:
        """The output, and activations by the names of their hook points; options as `get_caching_hooks`."""
        cache, forwards, backwards = self.get_caching_hooks(
            names_filter, incl_bwd, device, remove_batch_dim, pos_slice=pos_slice
        )
        with self.hooks(forwards, backwards, reset_hooks_end, clear_contexts):
            output = self(*args, **kwargs)
            if incl_bwd:
                output.backward()
        return output, cache


def _positions(activation: Tensor, which: Any, axis: int) -> Tensor:
    from transformer_lens.utilities.slice import Slice  # here: commands do without TransformerLens

    return Slice.unwrap(which).apply(activation, dim=axis) if activation.ndim >= -axis else activation
