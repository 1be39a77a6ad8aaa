r"""Many memories trained together: matrices, or MLPs with one hidden layer, each on associations of its own.

A memory maps an input e to a vector, for a matrix :math:`e W`, for an MLP :math:`\mathrm{ReLU}(e W_1) W_2`, without
biases; the product with each output u is its logit. All associations are one batch. Training takes Adam's steps on the
mean cross-entropy until the share of inputs whose answer is the argmax is large enough, or for `n_steps`.

Gradients are written out: with :math:`r_z = \sum_k p(k|z) u_k - u_{f(z)}`, that of a matrix is
:math:`\sum_z e_z^T r_z / N`, as in M1. Problems of unequal size are padded with inputs that are zero, which add nothing
to a gradient without biases, and with outputs that have no probability; those that are done leave the batch. Everything
is float32, as is usual in training.

*Shows* after how many steps each problem is stored. *Does not show* that another optimiser, or more steps, would not
store more.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mnemoscope import InputError, generator
from mnemoscope.core import in_range
from mnemoscope.systems.memory_theory.associations import Associations

NEVER = 0
"""Number of steps of what is not stored."""
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
CELLS = 2**19
"""Logits that are computed together; more leave the cache of a processor core."""
_NEGLIGIBLE = -80.0
"""Logits further below the highest count as that far: their odds are beyond float32, which is slow where it is tiny."""
_SHRINK = 0.75
"""Problems that are done are left in place while more than this share of the batch is not."""

Weights = tuple[Float[Tensor, "... _d_in _d_out"], ...]


@dataclass(frozen=True, kw_only=True)
class Training:
    """The rate and the number of steps of training; the rate must be positive, and there must be a step."""

    learning_rate: float
    n_steps: int

    def __post_init__(self) -> None:
        in_range("n_steps", self.n_steps, 1, float("inf"))
        if not self.learning_rate > 0:
            raise InputError(f"learning_rate must be positive; got {self.learning_rate!r}")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Batch:
    """Problems that are trained together, and the state of each."""

    inputs: Float[Tensor, "memory input d"]
    outputs: Float[Tensor, "memory output d"]
    answers: Int[Tensor, "memory input"]
    real: Bool[Tensor, "memory input"]
    absent: Float[Tensor, "memory 1 output"]
    needed: Int[Tensor, " memory"]
    weights: Weights
    number: Int[Tensor, " memory"]
    first: Weights = field(default=())
    second: Weights = field(default=())

    def keep(self, chosen: Int[Tensor, " memory"]) -> "_Batch":
        """Some of the problems, padded no more than they need."""
        n_in = int(self.real[chosen].sum(1).max())
        n_out = int((self.absent[chosen] == 0).sum(2).max())
        return replace(
            self,
            inputs=self.inputs[chosen, :n_in],
            outputs=self.outputs[chosen, :n_out],
            answers=self.answers[chosen, :n_in],
            real=self.real[chosen, :n_in],
            absent=self.absent[chosen, :, :n_out],
            needed=self.needed[chosen],
            number=self.number[chosen],
            **{name: tuple(each[chosen] for each in getattr(self, name)) for name in ("weights", "first", "second")},
        )


def zero_matrix(d: int) -> Weights:
    """The start of a matrix."""
    return (torch.zeros(d, d),)


def random_mlp(d: int, width: int, *, draw: int) -> Weights:
    """The start of an MLP: normal weights with the inverse of their number of inputs as variance."""
    stream = generator(draw, "mlp", d, width)
    return tuple(torch.randn(a, b, generator=stream, dtype=torch.float32) / a**0.5 for a, b in ((d, width), (width, d)))


@torch.no_grad()
def train_together(problems: Sequence[Associations], starts: Sequence[Weights], training: Training) -> list[int]:
    """Train a memory per problem, all of one shape, until it is stored; the first step at which each is, or `NEVER`."""
    if len(starts) != len(problems):
        raise InputError(f"starts must be one for each of {len(problems)} problems; got {len(starts)}")
    stored_after = [NEVER] * len(problems)
    for numbers in _groups(problems):
        for number, step in _stored(_batch(numbers, problems, starts), training):
            stored_after[number] = step
    return stored_after


def _groups(problems: Sequence[Associations]) -> Iterator[list[int]]:
    """Problems of similar size, so many that their logits stay in the cache."""
    order = sorted(range(len(problems)), key=lambda i: len(problems[i]), reverse=True)
    while order:
        largest = problems[order[0]]
        size = max(1, CELLS // (len(largest) * len(largest.outputs)))
        yield order[:size]
        order = order[size:]


def _batch(numbers: Sequence[int], problems: Sequence[Associations], starts: Sequence[Weights]) -> _Batch:
    chosen = [problems[i] for i in numbers]

    def padded(vectors: list[Tensor], value: float = 0.0) -> Tensor:
        return pad_sequence(vectors, batch_first=True, padding_value=value)

    return _Batch(
        inputs=padded([each.inputs for each in chosen]),
        outputs=padded([each.outputs for each in chosen]),
        answers=padded([each.answers for each in chosen]),
        real=padded([torch.ones(len(each), dtype=torch.bool) for each in chosen]),
        absent=padded([torch.zeros(len(each.outputs)) for each in chosen], -torch.inf)[:, None],
        needed=torch.tensor([each.n_needed for each in chosen]),
        weights=tuple(torch.stack(each) for each in zip(*(starts[i] for i in numbers), strict=True)),
        number=torch.tensor(numbers),
    )


def _stored(batch: _Batch, training: Training) -> Iterator[tuple[int, int]]:
    """The number of each problem that is stored, and after which step."""
    zeros = tuple(torch.zeros_like(weight) for weight in batch.weights)
    batch = replace(batch, first=zeros, second=tuple(zero.clone() for zero in zeros))
    done = torch.zeros(len(batch.number), dtype=torch.bool)
    for step in range(training.n_steps + 1):
        correct, gradients = _forward_backward(batch, backward=step < training.n_steps)
        new = (correct >= batch.needed) & ~done
        if step > 0 and new.any():  # before the first step all logits of a matrix are equal
            yield from ((number, step) for number in batch.number[new].tolist())
            done = done | new
            if done.all():
                return
            if (~done).float().mean() <= _SHRINK:
                left = (~done).nonzero()[:, 0]
                batch, gradients = batch.keep(left), tuple(gradient[left] for gradient in gradients)
                done = done[left]
        if step < training.n_steps:
            _adam(batch, gradients, step + 1, training.learning_rate)


def _forward_backward(batch: _Batch, *, backward: bool) -> tuple[Int[Tensor, " memory"], Weights]:
    """The number of right answers to each problem, and the gradients of the mean cross-entropy."""
    *hidden, last = batch.weights
    activations = [batch.inputs]
    for weight in hidden:
        activations.append((activations[-1] @ weight).relu_())
    logits = torch.baddbmm(batch.absent, activations[-1] @ last, batch.outputs.mT)
    highest = logits.amax(2, keepdim=True)
    answered = logits.gather(2, batch.answers[..., None])
    correct = ((answered >= highest)[..., 0] & batch.real).sum(1)
    if not backward:
        return correct, ()
    odds = logits.sub_(highest).clamp_(min=_NEGLIGIBLE).exp_()
    total = odds.sum(2, keepdim=True)
    asked = batch.outputs.gather(1, batch.answers[..., None].expand(-1, -1, batch.outputs.shape[2]))
    error = (odds @ batch.outputs).div_(total).sub_(asked) / batch.real.sum(1)[:, None, None]
    gradients = []
    for weight, read in zip(reversed(batch.weights), reversed(activations), strict=True):
        gradients.append(read.mT @ error)
        if weight is not batch.weights[0]:
            error = (error @ weight.mT).mul_(read > 0)
    return correct, tuple(reversed(gradients))


def _adam(batch: _Batch, gradients: Weights, step: int, learning_rate: float) -> None:
    scale, root = learning_rate / (1 - BETA_1**step), (1 - BETA_2**step) ** 0.5
    for weight, gradient, first, second in zip(batch.weights, gradients, batch.first, batch.second, strict=True):
        first.lerp_(gradient, 1 - BETA_1)
        second.mul_(BETA_2).addcmul_(gradient, gradient, value=1 - BETA_2)
        weight.addcdiv_(first, (second.sqrt() / root).add_(EPSILON), value=-scale)
