"""A model under test: prompts, runs with writes and observers, and the runs that many laws share.

Prompts are drawn by a seeded generator: `tokens` and, as many and as long, `donors`, whose activations are written into
runs on `tokens`. A run on `donors` is an independent computation of what such a write must lead to.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NoReturn, cast

import torch
from torch import Tensor

from mnemoscope.core.protocols import HookedModel, evaluation_mode, masked_token, reads_vectors
from mnemoscope.core.site import EMBEDDINGS, KINDS, OF_DICTIONARY, Kind, Site
from mnemoscope.interventions.comparison import DoesNotApplyError, RefusedError

Write = Tensor | Callable[[Tensor], Tensor]
Writes = Mapping[str, Write]
POINT_KINDS: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind not in ("result", *OF_DICTIONARY))
_NORMS = tuple(f"ln{n}.hook_{end}" for n in (1, 2) for end in ("scale", "normalized"))
_FINAL_NORM = tuple(f"ln_final.hook_{end}" for end in ("scale", "normalized"))
_EXTRA = ("attn.hook_rot_q", "attn.hook_rot_k", "mlp.hook_pre_linear", *_NORMS)
_TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-4, torch.bfloat16: 0.06, torch.float16: 0.02}
"""Relative differences that are rounding; models in double precision may form norms and softmax in single."""


def hook_name(kind: str, layer: int | None) -> str:
    """The hook point of a kind of site in a layer; any other kind is the name of the point within the block."""
    if kind in KINDS:
        return Site(kind=cast("Kind", kind), layer=None if kind in EMBEDDINGS else layer or 0).hook
    return kind if layer is None else f"blocks.{layer}.{kind}"


@dataclass(frozen=True, kw_only=True)
class Passed:
    """The logits of a run, and the activation at each hook point that was passed, as hooks left it."""

    logits: Tensor
    at: Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class TestSubject:
    """A model with prompts on which laws are checked."""

    __test__ = False  # no class of tests

    model: Any
    tokens: Tensor
    donors: Tensor
    seed: int = 0
    max_layers: int | None = 4
    """Layers that are looked at, of a deeper model the first two, one in the middle, and the last; None: all."""
    deadline: float = float("inf")
    """Time of `time.monotonic` at which laws that have not been checked are left out."""
    memory: dict[str, Any] = field(default_factory=dict)
    """Values that laws of one family share."""

    @property
    def cfg(self) -> Any:
        """Sizes and kinds of parts."""
        return self.model.cfg

    @cached_property
    def layers(self) -> tuple[int, ...]:
        """The layers that are looked at."""
        n = self.cfg.n_layers
        return tuple(range(n)) if n <= (self.max_layers or n) else (0, 1, n // 2, n - 1)

    @cached_property
    def tolerance(self) -> float:
        """Largest relative difference of two computations of one thing, in the precision of the model."""
        return _TOLERANCES.get(self.donor.logits.dtype, 1e-4)

    def skip(self, reason: str) -> NoReturn:
        """End a check: the law says nothing about this model."""
        raise DoesNotApplyError(reason)

    def changed(self, after: Tensor, before: Tensor) -> Tensor:
        """Mask of the rows that differ by more than rounding."""
        return (after - before).abs().amax(-1) > self.tolerance / 10 * before.abs().max()

    def generator(self, stream: int = 0) -> torch.Generator:
        """A generator of the CPU for draws of a law."""
        return torch.Generator().manual_seed(1000 * self.seed + stream)

    def noise(self, like: Tensor, stream: int = 0) -> Tensor:
        """Normal numbers in the shape of a tensor."""
        drawn = torch.randn(like.shape, generator=self.generator(stream), dtype=torch.float64)
        return drawn.to(like)

    def point(self, kind: str, layer: int | None) -> str:
        """The name of the hook point of a kind."""
        return hook_name(kind, layer)

    def layers_of(self, kind: str) -> tuple[int | None, ...]:
        """Layers at which a clean run passes a hook point of this kind; (None,) for embeddings."""
        candidates: Sequence[int | None] = (None,) if kind in EMBEDDINGS else self.layers
        return tuple(layer for layer in candidates if self.point(kind, layer) in self.clean.at)

    def require(self, *kinds: str) -> tuple[Any, ...]:
        """Layers that have all of these hook points; the law does not apply where there is none."""
        found = [set(self.layers_of(kind)) for kind in kinds]
        layers = set.intersection(*found)
        if not layers:
            self.skip(f"no run passes hook points of kind {' and '.join(kinds)}")
        return tuple(sorted(layers, key=lambda layer: -1 if layer is None else layer))

    @cached_property
    def points(self) -> tuple[str, ...]:
        """The classic hook points that the model declares, of the layers that are looked at."""
        names = [self.point(kind, layer) for layer in self.layers for kind in (*POINT_KINDS, *_EXTRA)]
        known = self.model.hook_dict  # a bridge makes it anew
        return tuple(name for name in dict.fromkeys([*names, *_FINAL_NORM]) if name in known)

    @cached_property
    def clean(self) -> Passed:
        """The run on `tokens`, observed at every point."""
        return self.run()

    @cached_property
    def donor(self) -> Passed:
        """The run on `donors`, observed at every point."""
        return self.run(self.donors)

    @torch.no_grad()
    def run(
        self,
        tokens: Tensor | None = None,
        writes: Writes | None = None,
        *,
        reads: Sequence[str] | None = None,
        **options: Any,
    ) -> Passed:
        """Run the model with values, or functions of the activation, written at hook points.

        `reads` are the points that are observed (None: all). An exception of the model becomes a `RefusedError`.
        """
        seen: dict[str, Tensor] = {}

        def observe(activation: Any, hook: Any, *, name: str) -> None:
            if isinstance(activation, Tensor):
                seen[name] = activation.detach().clone()

        hooks = [(name, _writer(value)) for name, value in (writes or {}).items()]
        hooks += [(name, _named(observe, name)) for name in (self.points if reads is None else reads)]
        tokens = self.tokens if tokens is None else tokens
        with evaluation_mode(self.model):
            logits = self.call(lambda: self.model.run_with_hooks(tokens, fwd_hooks=hooks, **options))
        return Passed(logits=logits.detach(), at=seen)

    def call(self, function: Callable[[], Any]) -> Any:
        """Call the model; its exceptions become a `RefusedError` with their first line."""
        try:
            return function()
        except Exception as error:
            line = (str(error).strip() or "no message").splitlines()[0]
            raise RefusedError(f"{type(error).__name__}: {line}") from error

    def shortened(self, n_rows: int, n_pos: int) -> "TestSubject":
        """The same model on the first rows and positions of the prompts."""
        tokens, donors = (each[:n_rows, :n_pos] for each in (self.tokens, self.donors))
        return replace(self, tokens=tokens, donors=donors, memory={})

    @property
    def time_is_up(self) -> bool:
        """True after the deadline."""
        return time.monotonic() > self.deadline


def make_subject(
    model: HookedModel, *, seed: int = 0, n_prompts: int = 2, n_pos: int = 6, max_seconds: float | None = None
) -> TestSubject:
    """A subject with prompts of its own; where the model reads vectors, prompts are vectors."""
    cfg, generator = model.cfg, torch.Generator().manual_seed(seed)
    shape = (2 * n_prompts, min(n_pos, cfg.n_ctx))
    first = next((parameter for _, parameter in model.named_parameters()), torch.zeros(1))
    if reads_vectors(model):
        drawn = torch.randn((*shape, cfg.d_vocab), generator=generator, dtype=torch.float64).to(first)
    else:
        masked = masked_token(model)
        allowed = torch.tensor([token for token in range(cfg.d_vocab) if token != masked])
        drawn = allowed[torch.randint(len(allowed), shape, generator=generator)].to(first.device)
    deadline = float("inf") if max_seconds is None else time.monotonic() + max_seconds
    return TestSubject(model=model, tokens=drawn[:n_prompts], donors=drawn[n_prompts:], seed=seed, deadline=deadline)


def _writer(value: Write) -> Callable[..., Tensor | None]:
    def write(activation: Any, hook: Any) -> Tensor | None:
        if not isinstance(activation, Tensor):  # some points pass several
            return None
        return (value(activation) if callable(value) else value).to(activation)

    return write


def _named(observe: Callable[..., None], name: str) -> Callable[..., None]:
    return lambda activation, hook: observe(activation, hook, name=name)
