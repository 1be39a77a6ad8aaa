"""Parameters and optimiser of one run, or of many runs stacked along a seed axis and computed as one program.

Parameters that are held get no gradient, which saves its computation. With one run the forward pass is called directly;
with more it runs under `vmap`. The loop sees no difference.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core.batch import Batch
from mnemoscope.core.specification import ModelSpec, Recipe
from mnemoscope.engine.architecture import transformer_from_spec
from mnemoscope.engine.block import OutputPlaces, select_positions
from mnemoscope.engine.changes import NO_CHANGES, Changes
from mnemoscope.interventions.clamping import Held
from mnemoscope.training.schedule import Examples

Loss = Callable[[Tensor, Batch], Tensor]
"""A number from outputs `batch scored d_output` and the batch at these positions."""

Moments = Mapping[str, Mapping[str, Tensor]]
"""The optimiser's moments by parameter and kind."""
_SHARED = "step"
"""The moment that all runs have in common: how many updates were made."""


class Learner:
    """The optimiser on the parameters of one or more models of one architecture."""

    def __init__(
        self, model: ModelSpec, recipe: Recipe, params: Sequence[Mapping[str, Tensor]], moments: Sequence[Moments]
    ):
        """Start from one dictionary of parameters, and one of the optimiser's moments (empty: afresh), per run."""
        self._model, self._recipe, self._n = model, recipe, len(params)
        self._mapped: bool | None = None
        self._params = {name: self._join([p[name] for p in params]).requires_grad_() for name in params[0]}
        self._optimizer = _optimizer(self._params.values(), recipe)
        for name, first in moments[0].items():
            joined = {kind: self._join([m[name][kind] for m in moments]) for kind in first if kind != _SHARED}
            shared = {_SHARED: first[_SHARED]} if _SHARED in first else {}
            self._optimizer.state[self._params[name]] = {**shared, **joined}

    def _join(self, values: Sequence[Tensor]) -> Tensor:
        return values[0].clone() if self._n == 1 else torch.stack(list(values))

    def _part(self, value: Tensor, run: int) -> Tensor:
        return value.detach() if self._n == 1 else value.detach()[run]

    @property
    def names(self) -> list[str]:
        """Names of the parameters."""
        return list(self._params)

    def hold(self, names: frozenset[str]) -> None:
        """Let the parameters of these names stay as they are until the next call; the others move."""
        for name, value in self._params.items():
            value.requires_grad_(name not in names)

    def losses(
        self, loss: Loss, examples: Examples, positions: Int[Tensor, " scored"], held: Held | None = None
    ) -> Float[Tensor, " run"]:
        """The loss of every run on its own sequences, with clamps in force or without."""

        def run_loss(outputs: Tensor, inputs: Tensor, targets: Tensor, scored: Tensor) -> Tensor:
            return loss(outputs, Batch(inputs=inputs, targets=targets, scored=scored))

        outputs = self._forward(examples.inputs, positions, held)
        seen = [select_positions(part, positions, 2) for part in examples]
        if self._n > 1 and self._mapped is None:
            self._mapped = _has_batching_rule(run_loss, outputs, *seen)
        if self._mapped:
            return torch.func.vmap(run_loss)(outputs, *seen)
        return torch.stack([run_loss(*run) for run in zip(outputs, *seen, strict=True)])

    @torch.no_grad()
    def evaluate(
        self, inputs: Tensor, positions: Int[Tensor, " scored"], held: Held | None = None
    ) -> Float[Tensor, "run batch scored d_output"]:
        """Logits, or output vectors, of every run on its own inputs, without a gradient."""
        return self._forward(inputs, positions, held)

    def _forward(self, inputs: Tensor, positions: Tensor, held: Held | None) -> Tensor:
        read, given = OutputPlaces(columns=positions), {} if held is None else held.by_run

        def outputs(params: Mapping[str, Tensor], own: Tensor, own_given: Mapping[str, Tensor]) -> Tensor:
            def run(params: Mapping[str, Tensor], changes: Changes) -> Tensor:
                return transformer_from_spec(params, self._model, fused=self._n == 1)(own, read, changes)

            return run(params, NO_CHANGES) if held is None else held.outputs(params, own, own_given, run, positions)

        if self._n == 1:
            return outputs(self._params, inputs[0], {name: value[0] for name, value in given.items()})[None]
        return torch.func.vmap(outputs)(self._params, inputs, given)

    def select_runs(self, runs: Sequence[int]) -> "Learner":
        """The learner of some of the runs, which go on without the others."""
        params, moments = [self.parameters(run) for run in runs], [self.moments(run) for run in runs]
        return Learner(self._model, self._recipe, params, moments)

    def update(self, losses: Float[Tensor, " run"], *, learning_rate: float) -> None:
        """One step down the gradient of every run's loss."""
        self._optimizer.zero_grad(set_to_none=True)
        losses.sum().backward()
        if self._recipe.clip_norm is not None:
            self._clip(self._recipe.clip_norm)
        self._optimizer.param_groups[0]["lr"] = learning_rate
        self._optimizer.step()

    def _clip(self, largest: float) -> None:
        """Scale the gradient of every run whose norm exceeds `largest`."""
        gradients = [value.grad for value in self._params.values() if value.grad is not None]
        by_run = [part[None] if self._n == 1 else part for part in gradients]
        norms = torch.stack([part.flatten(1).norm(dim=1) for part in by_run]).norm(dim=0)
        factors = largest / norms.clamp(min=largest)
        for part in by_run:
            part.mul_(factors.view(-1, *[1] * (part.ndim - 1)))

    def parameters(self, run: int) -> dict[str, Tensor]:
        """The parameters of one run."""
        return {name: self._part(value, run) for name, value in self._params.items()}

    def moments(self, run: int) -> Moments:
        """The optimiser's moments of one run, for the parameters that have moved."""
        return {
            name: {kind: entry if kind == _SHARED else self._part(entry, run) for kind, entry in state.items()}
            for name, value in self._params.items()
            if (state := self._optimizer.state.get(value))
        }


def _has_batching_rule(loss: Callable[..., Tensor], *args: Tensor) -> bool:
    """True if `vmap` can compute a loss; it cannot where rows are picked by a mask, since their number is a value."""
    try:
        torch.func.vmap(loss)(*(each[:, :1].detach() for each in args))
    except RuntimeError:
        return False
    return True


def _optimizer(params: Iterable[Tensor], recipe: Recipe) -> torch.optim.Optimizer:
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(params, momentum=recipe.momentum, weight_decay=recipe.weight_decay)
    betas = (recipe.beta1, recipe.beta2)
    return torch.optim.AdamW(params, betas=betas, weight_decay=recipe.weight_decay, fused=True)
