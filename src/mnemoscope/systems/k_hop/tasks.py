"""The k-fold composition task: functions from the context and functions from the weights, applied in turn.

A sequence shows k permutations s_1 … s_k of N symbols, drawn anew each time: the *place* (i, b), position (i - 1) N +
b, holds the symbol s_i(b), as a one-hot vector. Every place is also a question: with p_1 … p_k permutations that are
hidden, drawn once a replicate and the same in all its sequences, the answer at place (i, x) after h hops is

    f_h(i, x) = (s_(i+h-1) ∘ p_(i+h-1) ∘ … ∘ s_i ∘ p_i)(x)

as a one-hot vector again, for every number of hops h that the task names: each is a part of the target with a read-out
of its own. Functions are counted modulo k (`cyclic`), or only the places of the first function are asked.

System S7 (Wang et al. 2025, "Learning compositional functions with transformers from easy-to-hard data"). That all
numbers of hops are read out at the same place, and none is named in the input, is how the layer-wise analysis there
has it; a mean squared error stands for the loss.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope import TASKS, BaseTask, Batch, InputError, generator
from mnemoscope.core import POSITION_NAMES, in_range, metrics, one_of

SPLITS = ("train", "test")


@dataclass(frozen=True, kw_only=True)
class KHop(BaseTask):
    """Compose k functions that are shown with k that are hidden."""

    name: ClassVar[str] = "k-hop"
    references: ClassVar[tuple[str, ...]] = ("uniform", "one_hop", "all_but_longest", "shown_only", "answer")
    corruptions: ClassVar[tuple[str, ...]] = ("exchange_on_path", "exchange_elsewhere")

    n_symbols: int = 4
    """N; at least 4, so that two values of a function can change places beside any path."""
    n_functions: int = 4
    """k, permutations that are shown, and hidden ones."""
    hops: tuple[int, ...] = (1, 2, 4)
    """Numbers of hops that are due."""
    asked: tuple[int, ...] | None = None
    """Those of them that training asks for; none: all."""
    cyclic: bool = True
    """Whether every place is asked, or those of the first function."""
    hidden_seed: int | None = None
    """Seed of the hidden permutations; none: the seed of the run."""

    def __post_init__(self) -> None:
        in_range("task.n_symbols", self.n_symbols, 4, math.inf)
        in_range("task.n_functions", self.n_functions, 1, math.inf)
        for name, numbers in (("hops", self.hops), ("asked", self.hops if self.asked is None else self.asked)):
            if not numbers or list(numbers) != sorted(set(numbers)):
                raise InputError(f"task.{name} must name numbers of hops in ascending order, each once; got {numbers}")
        for number in self.hops:
            in_range("task.hops", number, 1, self.n_functions)
        for number in self.asked or ():
            one_of("task.asked", number, self.hops)

    @property
    def d_vocab(self) -> int:
        """Width of the input: the symbols."""
        return self.n_symbols

    @property
    def d_output(self) -> int:
        """Width of the targets: the symbols, for every number of hops."""
        return self.n_symbols * len(self.hops)

    @property
    def parts(self) -> Mapping[str, slice]:
        """`hops_h`: the right symbol after h hops."""
        n = self.n_symbols
        return {f"hops_{hops}": slice(n * i, n * (i + 1)) for i, hops in enumerate(self.hops)}

    @property
    def n_ctx(self) -> int:
        """Places: k N."""
        return self.n_functions * self.n_symbols

    def hidden(self) -> Int[Tensor, "function symbol"]:
        """The hidden permutations p; an `InputError` where none are chosen yet."""
        if self.hidden_seed is None:
            raise InputError("task.hidden_seed is not set: choose one, or take task.for_seed(seed)")
        draws = generator(self.hidden_seed, "hidden permutations")
        return torch.rand(self.n_functions, self.n_symbols, generator=draws, dtype=torch.float32).argsort(-1)

    # ---- generation

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` sequences; both splits are the same distribution."""
        one_of("split", split, SPLITS)
        size = (n, self.n_functions, self.n_symbols)
        return self.batch(
            torch.rand(size, generator=generator, device=generator.device, dtype=torch.float32).argsort(-1)
        )

    def batch(self, shown: Int[Tensor, "batch function symbol"]) -> Batch:
        """The sequences that show these functions."""
        symbols, one_hot = shown.flatten(1), torch.nn.functional.one_hot
        after = self.followed(symbols, self.hidden())[1][..., [hops - 1 for hops in self.hops]]
        asked = torch.arange(self.n_ctx, device=shown.device) < (self.n_ctx if self.cyclic else self.n_symbols)
        return Batch(
            inputs=one_hot(symbols, self.n_symbols).float(),
            targets=one_hot(after, self.n_symbols).float().flatten(-2),
            scored=asked.expand(len(shown), -1),
            derive=self.latents,
            parts=self.parts,
        )

    def followed(
        self, shown: Int[Tensor, "batch pos"], hidden: Int[Tensor, "function symbol"]
    ) -> tuple[Int[Tensor, "batch pos hop"], Int[Tensor, "batch pos hop"]]:
        """For every place the position that each of its k hops reads, and the symbol that it finds there."""
        n, hidden = self.n_symbols, hidden.to(shown.device)
        everywhere = torch.arange(self.n_ctx, device=shown.device).expand_as(shown)
        function, symbol = everywhere // n, everywhere % n
        at, after = [], []
        for hop in range(self.n_functions):
            following = (function + hop) % self.n_functions
            place = following * n + hidden[following, symbol]
            symbol = shown.gather(1, place)
            at.append(place)
            after.append(symbol)
        return torch.stack(at, -1), torch.stack(after, -1)

    def latents(self, batch: Batch) -> dict[str, Tensor]:
        """Facts about each position that follow from the symbols.

        `function`, from 0, and `argument` of the place; `at_j`, the position that the j-th hop from here reads, and
        `after_j`, the symbol found there.
        """
        at, after = self.followed(batch.inputs.argmax(-1), self.hidden())
        everywhere = torch.arange(self.n_ctx, device=at.device).expand(len(batch), -1)
        return {
            "function": everywhere // self.n_symbols,
            "argument": everywhere % self.n_symbols,
            **{f"after_{j + 1}": after[..., j] for j in range(self.n_functions)},
            **{f"at_{j + 1}": at[..., j] for j in range(self.n_functions)},
        }

    # ---- loss, exact predictors

    def loss(self, outputs: Float[Tensor, "batch pos d_output"], batch: Batch) -> Float[Tensor, ""]:
        """Mean squared error of the parts that are asked for."""
        errors = [
            metrics.squared_error(outputs[..., part], batch.targets[..., part])[batch.scored].mean()
            for hops, part in zip(self.hops, self.parts.values(), strict=True)
            if self.asked is None or hops in self.asked
        ]
        return torch.stack(errors).mean()

    def reference(self, batch: Batch, name: str) -> Float[Tensor, "batch pos d_output"]:
        """Predicted vectors, float64; NaN at positions that are not scored.

        `uniform`: 1/N for every symbol, the best constant: its squared error is (N - 1)/N². `one_hop`: knows the first
        hop, and guesses what more leads to. `all_but_longest`: guesses only after the most hops. `shown_only`: takes
        the hidden permutations for the identity. `answer`: the right answer.
        """
        known = {"uniform": 0, "one_hop": 1, "all_but_longest": self.hops[-1] - 1}
        one_of("reference", name, (*known, "shown_only", "answer"))
        result = batch.targets.double()
        if name == "shown_only":
            identity = torch.arange(self.n_symbols).expand(self.n_functions, -1)
            after = self.followed(batch.inputs.argmax(-1), identity)[1][..., [hops - 1 for hops in self.hops]]
            result = torch.nn.functional.one_hot(after, self.n_symbols).double().flatten(-2)
        for hops, part in zip(self.hops, self.parts.values(), strict=True):
            if hops > known.get(name, math.inf):
                result[..., part] = 1 / self.n_symbols
        return result.masked_fill(~batch.scored[..., None], math.nan)

    # ---- counterfactuals

    def corrupt(self, batch: Batch, *, kind: str, generator: torch.Generator) -> Batch:
        """Minimal pairs: two values of one function change places; `asker` and `hop` of the result say for whom.

        `exchange_on_path`: one of the two is the value that a random hop of a random asked place reads. The longest
        answer of that place changes, since all later functions are permutations. `exchange_elsewhere`: two others in
        that function change places; the answers of that place stay. Answers at other places are left open: read pairs
        at `asker`.
        """
        one_of("kind", kind, self.corruptions)
        n, device, n_symbols = len(batch), batch.inputs.device, self.n_symbols
        symbols, rows = batch.inputs.argmax(-1), torch.arange(n, device=device)
        draws = torch.rand(n, 2 + n_symbols, generator=generator, device=generator.device, dtype=torch.float32).to(
            device
        )
        asker = (draws[:, 0] * (self.n_ctx if self.cyclic else n_symbols)).long()
        hop = (draws[:, 1] * self.hops[-1]).long()
        place = self.followed(symbols, self.hidden())[0][rows, asker, hop]
        function, argument = place // n_symbols, place % n_symbols
        others = draws[:, 2:].scatter(1, argument[:, None], math.inf).argsort(1)  # the one that is read comes last
        one, other = (argument, others[:, 0]) if kind == "exchange_on_path" else (others[:, 0], others[:, 1])
        shown = symbols.unflatten(1, (self.n_functions, n_symbols)).clone()
        shown[rows, function, one], shown[rows, function, other] = (
            shown[rows, function, other],
            shown[rows, function, one],
        )
        result = self.batch(shown)
        return replace(result, known={"asker": asker, "hop": hop + 1}, weights=batch.weights, scored=batch.scored)

    def pair_report(self, clean: Batch, corrupted: Batch) -> dict[str, float]:
        """`answer_changed`: the share of the pairs in which the asker has another answer after the most hops."""
        rows = torch.arange(len(clean), device=clean.inputs.device)
        last = list(self.parts.values())[-1]
        differ = (clean.targets != corrupted.targets)[rows, corrupted.known["asker"]][:, last]
        return {"answer_changed": float(differ.any(-1).double().mean())}


def position_names(task: KHop) -> list[str]:
    """s1(0), s1(1), …: functions count from 1, symbols from 0."""
    return [f"s{i + 1}({b})" for i in range(task.n_functions) for b in range(task.n_symbols)]


TASKS.add(KHop.name, KHop)
POSITION_NAMES.add(KHop.name, position_names)
