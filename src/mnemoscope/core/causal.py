"""A causal model: variables, how each follows from those before it, and how they give the answer.

Setting a variable to another value and computing on from there says what a network that works in this way would
answer. An *interchange intervention* takes that value from another sequence: with base b and source s,

    counterfactual(b, s, V) = answer of b with V := the value of V in s

(Geiger et al. 2021, "Causal abstractions of neural networks"). What comes before V and what does not depend on it stay
as they are in b; what follows from V is computed anew.

It is a hypothesis, and says nothing about any network by itself: `analyses.interchange` puts it to the test.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range, one_of

TOLERANCE = 1e-6
"""The error allowed in the sum of probabilities, and the distance at which others are as good as the largest one."""

Values = Mapping[str, Tensor]
"""Values by name; the first axis of each is the batch."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CausalModel:
    """Variables and the answer, as functions of what comes before them.

    Each function is given the values so far by name: `tokens` (the inputs), the latents of the batch, and the
    variables before it. A variable may have the name of a latent; it then stands in its place for all that follow.

    Attributes:
        variables: Name to function, in the order in which they are computed; a value has the batch as first axis.
        answer: The function that gives the next token: whole numbers `batch`, or probabilities `batch token` where
            several answers are right.
        pos: The place of the answer: a position, or the name of a latent that holds one a sequence.
    """

    name: str
    variables: Mapping[str, Callable[[Values], Tensor]]
    answer: Callable[[Values], Tensor]
    pos: int | str = -1

    def __post_init__(self) -> None:
        if not self.variables:
            raise InputError(f"the causal model {self.name} needs at least one variable; got none")

    def values(self, batch: Batch, changed: Values | None = None) -> dict[str, Tensor]:
        """Every value by name: tokens, latents, and the variables in their order.

        What follows from variables that are `changed` is computed from their new values. Raises InputError where the
        batch is empty, there is no such variable, a function reads what is not there yet, or a value does not have the
        batch as first axis.
        """
        in_range("the number of sequences of a batch", len(batch), 1, float("inf"))
        changed = {} if changed is None else changed
        for name in changed:
            one_of("a variable that is set", name, self.variables)
        known: dict[str, Tensor] = {"tokens": batch.inputs, **batch.latents}
        for name, function in self.variables.items():
            value = changed[name] if name in changed else self._computed(f"variable {name}", function, known)
            if not isinstance(value, Tensor) or value.shape[:1] != (len(batch),):
                shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
                raise InputError(
                    f"variable {name} of {self.name} must be a tensor with a row for each of the {len(batch)} "
                    f"sequences; got {shape}"
                )
            known[name] = value
        return known

    def answers(self, batch: Batch, d_vocab: int, changed: Values | None = None) -> Float[Tensor, "batch d_vocab"]:
        """Probabilities of the answer, in float64; all on one token where the answer is a token.

        Tokens that the answer says nothing about get 0. `changed` and errors are as for `values`; an answer that is
        neither tokens nor probabilities is refused too.
        """
        answer = self._computed("the answer", self.answer, self.values(batch, changed))
        if answer.shape == (len(batch),) and not answer.dtype.is_floating_point and answer.dtype != torch.bool:
            for token in (answer.min(), answer.max()):
                in_range(f"a token that {self.name} answers", int(token), 0, d_vocab - 1)
            return torch.nn.functional.one_hot(answer.long(), d_vocab).double()
        if answer.ndim != 2 or len(answer) != len(batch) or not 1 <= answer.shape[1] <= d_vocab:
            raise InputError(
                f"the answer of {self.name} must be tokens, shape ({len(batch)},), or probabilities, shape "
                f"({len(batch)}, at most {d_vocab}); got shape {tuple(answer.shape)} of type {answer.dtype}"
            )
        answer = answer.double()
        if not ((answer >= 0).all() and ((answer.sum(1) - 1).abs() < TOLERANCE).all()):
            raise InputError(f"probabilities that {self.name} answers must not be negative or NaN and must add up to 1")
        return torch.nn.functional.pad(answer, (0, d_vocab - answer.shape[1]))

    def interchanged(self, base: Batch, source: Batch, variable: str, d_vocab: int) -> Float[Tensor, "batch d_vocab"]:
        """The answer on each row of `base` with one variable as in the same row of `source`.

        Errors are those of `answers`; the batches must have one size.
        """
        one_of("variable", variable, self.variables)
        if len(base) != len(source):
            raise InputError(f"base and source must have as many rows; got {len(base)} and {len(source)}")
        return self.answers(base, d_vocab, {variable: self.values(source)[variable]})

    def due(self, values: Shaped[Tensor, "batch pos *rest"], batch: Batch) -> Shaped[Tensor, "batch *rest"]:
        """The values at the positions of the answer.

        Raises InputError where a position lies outside the sequences, or the batch has no such latent.
        """
        n_pos = batch.inputs.shape[1]
        if isinstance(self.pos, int):
            in_range(f"the position of the answer of {self.name}", self.pos, -n_pos, n_pos - 1)
            return values[:, self.pos]
        one_of(f"the latent that gives the position of the answer of {self.name}", self.pos, batch.latents)
        place = batch.latents[self.pos].long()
        for end in (place.min(), place.max()):
            in_range(f"latent {self.pos} as the position of an answer", int(end), 0, n_pos - 1)
        return values[torch.arange(len(batch), device=place.device), place]

    def agreement(self, batch: Batch, d_vocab: int) -> float:
        """The share of scored rows, among those whose answer is one token, whose target is the answer; NaN without any.

        Errors are those of `answers`.
        """
        wanted = most_probable(self.answers(batch, d_vocab))
        counted = (wanted.sum(1) == 1) & self.due(batch.scored, batch)
        target = self.due(batch.targets, batch)
        return float(wanted.gather(1, target[:, None])[counted].double().mean())

    def _computed(self, what: str, function: Callable[[Values], Tensor], known: Values) -> Tensor:
        try:
            return function(MappingProxyType(known))
        except KeyError as missing:
            raise InputError(
                f"{what} of {self.name} reads {missing}, which comes neither with the batch nor before it; there are "
                f"{', '.join(known)}"
            ) from missing


def most_probable(probabilities: Float[Tensor, "*rows d_vocab"]) -> Bool[Tensor, "*rows d_vocab"]:
    """The most probable tokens; of equals all."""
    return probabilities >= probabilities.max(-1, keepdim=True).values - TOLERANCE
