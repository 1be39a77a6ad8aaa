"""The k-fold composition task: functions from the context and functions from the weights, applied in turn.

A sequence shows k permutations s_1 … s_k of N symbols, drawn anew each time: position a N + b holds the symbol
s_(a+1)(b), so that places say which function and which argument. Queries follow, one token each: a start i, a number of
hops h and a symbol x. What is due is

    f(s, i, x) = (s_(i+h-1) ∘ p_(i+h-1) ∘ … ∘ s_i ∘ p_i)(x)

with k permutations p_1 … p_k that are hidden: drawn once a replicate, the same in all its sequences. All queries start
at i = 1, or at any i, functions counted modulo k (`cyclic`).

System S7 (Wang et al. 2025, "Learning compositional functions with transformers from easy-to-hard data"). How a query
says its start and hops is not stated there; here it is one token of its own for every (h, i, x), and several queries
may share a context.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope import TASKS, Batch, InputError, generator
from mnemoscope.core import in_range, metrics, one_of

SPLITS = ("train", "test")


@dataclass(frozen=True, kw_only=True)
class KHop:
    """Compose k functions that are shown with k that are hidden."""

    name: ClassVar[str] = "k-hop"
    references: ClassVar[tuple[str, ...]] = ("uniform", "one_hop", "all_but_longest", "shown_only", "answer")
    corruptions: ClassVar[tuple[str, ...]] = ("exchange_on_path", "exchange_elsewhere", "other_argument")
    slot_size: ClassVar[int] = 1

    n_symbols: int = 4
    """N; at least 4, so that two values of a function can change places beside any query's path."""
    n_functions: int = 4
    """k, permutations that are shown, and hidden ones."""
    hops: tuple[int, ...] = (1, 2, 4)
    """Numbers of hops that queries ask for, each as often as the others."""
    cyclic: bool = False
    """Whether queries start at any function, or at the first."""
    n_queries: int = 4
    """Queries a sequence."""
    hidden_seed: int | None = None
    """Seed of the hidden permutations; none: the seed of the run."""

    def __post_init__(self) -> None:
        in_range("task.n_symbols", self.n_symbols, 4, math.inf)
        in_range("task.n_functions", self.n_functions, 1, math.inf)
        in_range("task.n_queries", self.n_queries, 1, math.inf)
        if not self.hops or list(self.hops) != sorted(set(self.hops)):
            raise InputError(f"task.hops must name numbers of hops in ascending order, each once; got {self.hops}")
        for number in self.hops:
            in_range("task.hops", number, 1, self.n_functions)

    @property
    def n_shown(self) -> int:
        """Positions of the functions: k N."""
        return self.n_functions * self.n_symbols

    @property
    def n_starts(self) -> int:
        """Functions that a query may start at."""
        return self.n_functions if self.cyclic else 1

    @property
    def d_vocab(self) -> int:
        """The symbols, and a token for every query of 1 to k hops."""
        return self.n_symbols * (1 + self.n_functions * self.n_starts)

    @property
    def answers(self) -> range:
        """The symbols."""
        return range(self.n_symbols)

    @property
    def n_ctx(self) -> int:
        """Functions and queries."""
        return self.n_shown + self.n_queries

    def for_seed(self, seed: int) -> "KHop":
        """The same task with the hidden permutations of the replicate `seed`, unless they are fixed."""
        return self if self.hidden_seed is not None else replace(self, hidden_seed=seed)

    def hidden(self) -> Int[Tensor, "function symbol"]:
        """The hidden permutations p.

        Raises:
            InputError: None are chosen yet.
        """
        if self.hidden_seed is None:
            raise InputError("task.hidden_seed is not set: choose one, or take task.for_seed(seed)")
        draws = generator(self.hidden_seed, "hidden permutations")
        return torch.rand(self.n_functions, self.n_symbols, generator=draws).argsort(-1)

    # ---- generation

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` sequences; both splits are the same distribution.

        Raises:
            InputError: There is no such split.
        """
        one_of("split", split, SPLITS)
        allowed = torch.tensor(self.hops, device=generator.device)

        def draw(below: int) -> Int[Tensor, "batch query"]:
            return torch.randint(below, (n, self.n_queries), generator=generator, device=generator.device)

        size = (n, self.n_functions, self.n_symbols)
        shown = torch.rand(size, generator=generator, device=generator.device).argsort(-1)
        return self.batch(shown, self.query(allowed[draw(len(allowed))], draw(self.n_starts), draw(self.n_symbols)))

    def query(
        self, hops: Int[Tensor, "*rows"], start: Int[Tensor, "*rows"], symbol: Int[Tensor, "*rows"]
    ) -> Int[Tensor, "*rows"]:
        """The tokens of queries: how many hops, from which function (from 0), of which symbol."""
        return self.n_symbols * (1 + (hops - 1) * self.n_starts + start) + symbol

    def asked(self, tokens: Int[Tensor, "*rows"]) -> tuple[Int[Tensor, "*rows"], ...]:
        """Hops, start and symbol of queries, the inverse of `query`; of symbols 0 hops."""
        number, symbol = tokens // self.n_symbols - 1, tokens % self.n_symbols
        return number // self.n_starts + 1, number % self.n_starts, symbol

    def batch(self, shown: Int[Tensor, "batch function symbol"], queries: Int[Tensor, "batch query"]) -> Batch:
        """The sequences that show these functions and ask these queries."""
        inputs = torch.cat((shown.flatten(1), queries), 1)
        after, hops = self._followed(inputs, self.hidden())[1], self.asked(inputs)[0]
        due = after.gather(-1, (hops - 1).clamp(min=0)[..., None])[..., 0]
        scored = (torch.arange(self.n_ctx, device=inputs.device) >= self.n_shown).expand(len(inputs), -1)
        return Batch(inputs=inputs, targets=due.masked_fill(~scored, 0), scored=scored, derive=self.latents)

    def _followed(
        self, inputs: Int[Tensor, "batch pos"], hidden: Int[Tensor, "function symbol"]
    ) -> tuple[Int[Tensor, "batch pos hop"], Int[Tensor, "batch pos hop"]]:
        """For every position where each hop reads, and the symbol that it finds there; below 0 where there is none.

        A query starts at its function; a position of function a, argument b, starts by reading itself.
        """
        device, n = inputs.device, self.n_symbols
        hidden, shown = hidden.to(device), inputs[:, : self.n_shown]
        everywhere = torch.arange(self.n_ctx, device=device).expand_as(inputs)
        _, start, symbol = self.asked(inputs)
        is_query = everywhere >= self.n_shown
        function = torch.where(is_query, start, everywhere // n)
        place = torch.where(is_query, function * n + hidden[function, symbol], everywhere)
        at, after = [], []
        for _ in range(self.n_functions):
            there = (function < self.n_functions) | self.cyclic
            found = shown.gather(1, place)
            at.append(place.masked_fill(~there, -1))
            after.append(found.masked_fill(~there, -1))
            function = function + 1
            following = function % self.n_functions
            place = following * n + hidden[following, found]
        return torch.stack(at, -1), torch.stack(after, -1)

    def latents(self, batch: Batch) -> dict[str, Tensor]:
        """What follows from the tokens, per position.

        `hops`, `start` and `argument` of queries, below 0 elsewhere. `after_j`, the symbol after j hops from here: for
        a query j hops from its start, up to those it asks for; for a position of a function from that value, which
        counts as one hop. `at_j`, the position that the j-th hop reads. Below 0 where there is none.
        """
        at, after = self._followed(batch.inputs, self.hidden())
        hops, start, argument = self.asked(batch.inputs)
        is_query = hops > 0
        number = torch.arange(1, self.n_functions + 1, device=hops.device)
        beyond = is_query[..., None] & (number > hops[..., None])
        at, after = at.masked_fill(beyond, -1), after.masked_fill(beyond, -1)
        of_queries = {"hops": hops, "start": start, "argument": argument}
        return {
            **{name: value.masked_fill(~is_query, -1) for name, value in of_queries.items()},
            **{f"after_{j + 1}": after[..., j] for j in range(self.n_functions)},
            **{f"at_{j + 1}": at[..., j] for j in range(self.n_functions)},
        }

    def enumerate(self, *, split: str) -> Batch:
        """There are (N!)^k contexts.

        Raises:
            InputError: Always.
        """
        raise InputError(f"the sequences of {self.name} cannot be enumerated; draw samples")

    def monitor(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` sequences of equal weight."""
        batch = self.sample(n, split=split, generator=generator)
        return replace(batch, weights=torch.full((n,), 1 / n, device=generator.device))

    # ---- skills, loss, exact predictors

    def subgroups(self, batch: Batch) -> dict[str, Bool[Tensor, " batch"]]:
        """None: a sequence may hold queries of all numbers of hops."""
        return {}

    def skills(self, batch: Batch) -> dict[str, Bool[Tensor, "batch pos"]]:
        """`hops_h`: the last query, where it asks for h hops; minimal pairs are about the last query too."""
        last = torch.arange(self.n_ctx, device=batch.inputs.device) == self.n_ctx - 1
        return {f"hops_{h}": last & (batch.latents["hops"] == h) for h in self.hops}

    def loss(self, outputs: Float[Tensor, "batch pos d_vocab"], batch: Batch) -> Float[Tensor, ""]:
        """Mean cross-entropy over the queries, in nats."""
        losses = metrics.cross_entropy(outputs, batch.targets)
        return (losses * batch.scored).sum() / batch.scored.sum()

    def reference(self, batch: Batch, name: str) -> Float[Tensor, "batch pos d_vocab"]:
        """Probabilities, float64; NaN at positions that are not scored.

        `uniform`: all symbols alike. `one_hop`: answers queries of one hop, and guesses the others. `all_but_longest`:
        guesses only those of the most hops. `shown_only`: takes the hidden permutations for the identity. `answer`:
        what is due.

        Raises:
            InputError: There is no such reference.
        """
        known = {"uniform": 0, "one_hop": 1, "all_but_longest": self.hops[-1] - 1, "shown_only": math.inf}
        one_of("reference", name, (*known, "answer"))
        hops, hidden = self.asked(batch.inputs)[0], self.hidden()
        if name == "shown_only":
            hidden = torch.arange(self.n_symbols).expand_as(hidden)
        after = self._followed(batch.inputs, hidden)[1]
        right = after.gather(-1, (hops - 1).clamp(min=0)[..., None])[..., 0].clamp(min=0)
        result = torch.nn.functional.one_hot(right, self.d_vocab).double()
        guess = torch.zeros_like(result)
        guess[..., : self.n_symbols] = 1 / self.n_symbols
        result = torch.where((hops <= known.get(name, math.inf))[..., None], result, guess)
        return result.masked_fill(~batch.scored[..., None], math.nan)

    # ---- counterfactuals

    def corrupt(self, batch: Batch, *, kind: str, generator: torch.Generator) -> Batch:
        """Minimal pairs; they are about the last query, and what becomes of the others is left open.

        `exchange_on_path`: in the function that a random one of its hops reads, the value read there and another one
        change places. The answer changes, since all later functions are permutations. `exchange_elsewhere`: in that
        function two other values change places. The answer stays. `other_argument`: the query asks for another symbol.
        The answer changes.

        Raises:
            InputError: There is no such kind.
        """
        one_of("kind", kind, self.corruptions)
        n, device, n_symbols = len(batch), batch.inputs.device, self.n_symbols
        shown = batch.inputs[:, : self.n_shown].unflatten(1, (self.n_functions, n_symbols)).clone()
        queries = batch.inputs[:, self.n_shown :].clone()
        hops, start, symbol = self.asked(queries[:, -1])
        draws = torch.rand(n, 1 + n_symbols, generator=generator, device=generator.device).to(device)
        hop = (draws[:, 0] * hops).long()
        rows = torch.arange(n, device=device)
        place = self._followed(batch.inputs, self.hidden())[0][rows, -1, hop]
        function, argument = place // n_symbols, place % n_symbols
        others = draws[:, 1:].scatter(1, argument[:, None], math.inf).argsort(1)  # the one that is read comes last
        if kind == "other_argument":
            queries[:, -1] = self.query(hops, start, (symbol + 1 + (draws[:, 1] * (n_symbols - 1)).long()) % n_symbols)
        else:
            one, other = (argument, others[:, 0]) if kind == "exchange_on_path" else (others[:, 0], others[:, 1])
            values = shown[rows, function, one]
            shown[rows, function, one] = shown[rows, function, other]
            shown[rows, function, other] = values
        return replace(self.batch(shown, queries), weights=batch.weights, scored=batch.scored)

    def pair_report(self, clean: Batch, corrupted: Batch) -> dict[str, float]:
        """`answer_changed`: the share of the pairs in which the last query has another answer."""
        return {"answer_changed": float((clean.targets != corrupted.targets)[:, -1].double().mean())}


TASKS.add(KHop.name, KHop)
