"""The retrieval problem: follow a chain of pairs through the context, from vectors to vectors.

A sequence holds N chains x_0 x_1 … x_D of symbols that occur nowhere else. Each symbol gets a vector of K independent
standard normal numbers, new in every sequence. The pairs (x_{j-1}, x_j) of step j, one a chain and shuffled across
chains, stand together, step after step; the N queries x_0 come last, shuffled too: N(2D + 1) positions. The input of a
position is the vector of its symbol and, behind it, a rotary code of its pair: with f_i = 10000^(-2i/K), i < K/2, the
numbers cos(p f_i) and sin(p f_i) of pair p. The answer to a query is its whole chain x_1 … x_D (the implicit
curriculum), or x_D alone; the loss is the mean squared error.

System S8 (Musat, "Mechanism and emergence of stacked attention heads in multi-layer transformers"). Two things the
source leaves open, and they are fields: queries have codes of their own, numbered after the pairs, or none; and the
steps stand in the order of the chain, or backwards.

The *places* of a chain are numbered as in the source's proof: 0 is the query, 2j - 1 and 2j are the first and second
symbol of its pair of step j. Neighbouring places share a symbol or a code; no other two do.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal

import torch
from einops import repeat
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope import TASKS, BaseTask, Batch, InputError
from mnemoscope.core import POSITION_NAMES, in_range, metrics, one_of

SPLITS = ("train", "test")
_BASE = 10_000.0


@dataclass(frozen=True, kw_only=True)
class Retrieval(BaseTask):
    """N chains of D steps over symbols that are random vectors."""

    name: ClassVar[str] = "retrieval"
    references: ClassVar[tuple[str, ...]] = ("mean", "step", "first", "all_but_last", "chain")
    corruptions: ClassVar[tuple[str, ...]] = ("rewire", "exchange")

    n_chains: int = 4
    """N, chains a sequence."""
    n_steps: int = 3
    """D, pairs a chain."""
    d_symbol: int = 4
    """K, entries of a symbol's vector, and of a code; even."""
    whole_chain: bool = True
    """Whether the whole chain is due (the implicit curriculum), or its last symbol only."""
    query_codes: Literal["own", "none"] = "own"
    """Codes of the queries: numbered after the pairs, or zeros."""
    order: Literal["forward", "backward"] = "forward"
    """Whether step 1 or step D stands first."""

    def __post_init__(self) -> None:
        in_range("task.n_chains", self.n_chains, 2, math.inf)
        in_range("task.n_steps", self.n_steps, 1, math.inf)
        in_range("task.d_symbol", self.d_symbol, 2, math.inf)
        if self.d_symbol % 2:
            raise InputError(
                f"task.d_symbol must be even, since codes consist of cosines and sines; got {self.d_symbol}"
            )
        one_of("task.query_codes", self.query_codes, ("own", "none"))
        one_of("task.order", self.order, ("forward", "backward"))

    @property
    def n_pairs(self) -> int:
        """Pairs a sequence."""
        return self.n_chains * self.n_steps

    @property
    def n_ctx(self) -> int:
        """Length of a sequence."""
        return 2 * self.n_pairs + self.n_chains

    @property
    def d_vocab(self) -> int:
        """Width of the input."""
        return 2 * self.d_symbol

    @property
    def d_output(self) -> int:
        """Width of the targets."""
        return self.d_symbol * (self.n_steps if self.whole_chain else 1)

    @property
    def parts(self) -> Mapping[str, slice]:
        """The parts of an answer, `x1` to `xD`, one for each step; where the last symbol alone is asked for, `xD`."""
        steps = self.due
        return {f"x{step}": slice(self.d_symbol * i, self.d_symbol * (i + 1)) for i, step in enumerate(steps)}

    @property
    def due(self) -> range:
        """Places in the chain, from 1, of the symbols of the answer."""
        return range(1 if self.whole_chain else self.n_steps, self.n_steps + 1)

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` sequences; both splits are the same distribution."""
        one_of("split", split, SPLITS)
        device, n_chains = generator.device, self.n_chains
        draws = torch.rand(n, self.n_steps + 1, n_chains, generator=generator, device=device, dtype=torch.float32)
        chain = draws.argsort(-1)  # of the pair at every place of every step, of the queries last
        vectors = torch.randn(
            n, n_chains * (self.n_steps + 1), self.d_symbol, generator=generator, device=device, dtype=torch.float32
        )
        first = chain * (self.n_steps + 1) + torch.arange(self.n_steps + 1, device=device)[:, None]
        pairs, queries = torch.stack((first[:, :-1], first[:, :-1] + 1), -1), chain[:, -1] * (self.n_steps + 1)
        if self.order == "backward":
            pairs = pairs.flip(1)
        symbol = torch.cat((pairs.flatten(1), queries), 1)
        return self._batch(symbol, vectors, queries[..., None] + torch.tensor(self.due, device=device))

    def batch(self, symbol: Int[Tensor, "batch pos"], vectors: Float[Tensor, "batch symbol d_symbol"]) -> Batch:
        """The sequences with these symbols, by number, at their positions: pairs first, then queries.

        `vectors` are those of the symbols.
        """
        lies = self.positions(symbol)[:, 2 * self.n_pairs :, [2 * step for step in self.due]]
        return self._batch(symbol, vectors, symbol.gather(1, lies.flatten(1)).unflatten(1, lies.shape[1:]))

    def _batch(
        self,
        symbol: Int[Tensor, "batch pos"],
        vectors: Float[Tensor, "batch symbol d_symbol"],
        due: Int[Tensor, "batch query step"],
    ) -> Batch:
        """The same, with the symbols that answer every query."""
        rows = torch.arange(len(symbol), device=symbol.device)[:, None]
        own, codes = vectors[rows, symbol], self.codes(symbol.device).to(vectors)
        targets = vectors.new_zeros(*symbol.shape, self.d_output)
        targets[:, 2 * self.n_pairs :] = vectors[rows[..., None], due].flatten(2)
        return Batch(
            inputs=torch.cat((own, codes.expand(len(own), -1, -1)), -1),
            targets=targets,
            scored=self.is_query(symbol.device).expand(len(own), -1),
            known={"symbol": symbol},
            derive=self.latents,
            parts=self.parts,
        )

    def codes(self, device: torch.device | str = "cpu") -> Float[Tensor, "pos d_symbol"]:
        """The code of every position."""
        return _codes(self.n_pairs, self.n_chains, self.d_symbol, self.query_codes).to(device)

    def is_query(self, device: torch.device | str = "cpu") -> Bool[Tensor, " pos"]:
        """True at positions that are queries."""
        return torch.arange(self.n_ctx, device=device) >= 2 * self.n_pairs

    def positions(self, symbol: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos place"]:
        """The positions of the places of the chain that a symbol leads to, for the symbol of every position.

        A query is followed through the pairs. A symbol of a pair of step j knows its own place and the later ones;
        below 0 what lies before, and what does not exist (a symbol that no pair starts with).
        """
        n, n_pos, n_pairs = len(symbol), symbol.shape[1], 2 * self.n_pairs
        by_step = symbol[:, :n_pairs].unflatten(1, (self.n_steps, self.n_chains, 2))
        start = torch.arange(self.n_steps, device=symbol.device) * 2 * self.n_chains
        if self.order == "backward":
            by_step, start = by_step.flip(1), start.flip(0)
        result = torch.full((n, n_pos, 2 * self.n_steps + 1), -1, device=symbol.device)
        everywhere = torch.arange(n_pos, device=symbol.device).expand(n, -1)
        query = everywhere >= n_pairs
        result[..., 0] = torch.where(query, everywhere, -1)
        current = torch.where(query, symbol, -1)  # the last symbol that was reached
        for j in range(self.n_steps):
            block = (everywhere >= start[j]) & (everywhere < start[j] + 2 * self.n_chains)
            is_first = block & ((everywhere - start[j]) % 2 == 0)
            match = by_step[:, j, :, 0][:, None] == torch.where(is_first, symbol, current)[..., None]
            pair = start[j] + 2 * match.int().argmax(-1)
            there = match.any(-1)
            second = torch.where(block & ~is_first, everywhere, torch.where(there, pair + 1, -1))
            result[..., 2 * j + 1] = torch.where(is_first, everywhere, torch.where(there, pair, -1))
            result[..., 2 * j + 2] = second
            current = torch.where(second >= 0, symbol.gather(1, second.clamp(min=0)), -1)
        return result

    def latents(self, batch: Batch) -> dict[str, Tensor]:
        """Facts about each position that follow from the symbols.

        `place` of the chain; `pair`, its number, those of queries after those of pairs; `chain`, the query (from 0, in
        their order) that leads there, below 0 where none does; `at_i`, where place i of that query's chain lies, below
        0 where no query leads there.
        """
        symbol = batch.known["symbol"]
        n_pairs, n_places = 2 * self.n_pairs, 2 * self.n_steps + 1
        everywhere = torch.arange(self.n_ctx, device=symbol.device)
        step = torch.div(everywhere, 2 * self.n_chains, rounding_mode="floor")
        step = self.n_steps - 1 - step if self.order == "backward" else step
        place = torch.where(everywhere < n_pairs, 2 * step + 1 + everywhere % 2, 0)
        pair = torch.where(everywhere < n_pairs, everywhere // 2, everywhere - n_pairs + self.n_pairs)
        of_queries = self.positions(symbol)[:, n_pairs:]
        chain = torch.full_like(symbol, -1)
        number = torch.arange(self.n_chains, device=symbol.device)
        rows = repeat(number, "query -> batch (query place)", batch=len(symbol), place=n_places)
        chain.scatter_(1, of_queries.flatten(1), rows)
        lies = of_queries.gather(1, repeat(chain.clamp(min=0), "batch pos -> batch pos place", place=n_places))
        lies = lies.masked_fill((chain < 0)[..., None], -1)
        per_position = {"place": place.expand_as(symbol), "pair": pair.expand_as(symbol), "chain": chain}
        return {**per_position, **{f"at_{i}": lies[..., i] for i in range(n_places)}}

    def corrupt(self, batch: Batch, *, kind: str, generator: torch.Generator) -> Batch:
        """Minimal pairs; `corrupted_step` and `corrupted_query` of the result say where they differ.

        `rewire`: one pair of one chain leads to the symbol that another chain has there, and on along that chain.
        `exchange`: two chains exchange what a step leads to, so that each goes on along the other.
        The answers change from that step on, and nowhere before.
        """
        one_of("kind", kind, self.corruptions)
        n, device, symbol = len(batch), batch.inputs.device, batch.known["symbol"]

        def draw(below: int) -> Int[Tensor, " batch"]:
            drawn = torch.randint(below, (n,), generator=generator, device=generator.device)
            return drawn.to(device)

        step, query = draw(self.n_steps), draw(self.n_chains)
        other = (query + 1 + draw(self.n_chains - 1)) % self.n_chains
        rows, offset = torch.arange(n, device=device), 2 * self.n_pairs
        lies = self.positions(symbol)[:, offset:]
        one, two = (lies[rows, which, 2 * step + 2] for which in (query, other))
        changed = symbol.clone()
        changed[rows, one] = symbol[rows, two]
        if kind == "exchange":
            changed[rows, two] = symbol[rows, one]
        vectors = batch.inputs.new_zeros(n, int(symbol.max()) + 1, self.d_symbol)
        vectors[rows[:, None], symbol] = batch.inputs[..., : self.d_symbol]
        result = self.batch(changed, vectors)
        known = {**result.known, "corrupted_step": step + 1, "corrupted_query": query}
        return replace(result, known=known, weights=batch.weights, scored=batch.scored)

    def pair_report(self, clean: Batch, corrupted: Batch) -> dict[str, float]:
        """`answer_changed`: in which share of the pairs some answer differs."""
        differ = (clean.targets != corrupted.targets).any(-1) & clean.scored
        return {"answer_changed": float(differ.any(1).double().mean())}

    def reference(self, batch: Batch, name: str) -> Float[Tensor, "batch pos d_output"]:
        """Predicted vectors, float64; NaN at positions that are not scored.

        `mean`: zeros, the mean of all symbols (squared error 1). `step`: for every step the mean of the N symbols that
        pairs of that step lead to (1 - 1/N on average): the best guess of one who cannot tell the chains apart.
        `first`: x_1 is known, later ones are guessed so. `all_but_last`: x_D is guessed so, the others are known.
        `chain`: the answer.
        """
        reached = {"mean": -1, "step": 0, "first": 1, "all_but_last": self.n_steps - 1, "chain": self.n_steps}
        one_of("reference", name, reached)
        return self.best_guess(batch, reached[name])

    def best_guess(self, batch: Batch, reached: int) -> Float[Tensor, "batch pos d_output"]:
        """The best guess of one who has followed every chain for `reached` steps.

        The symbols up to there are known; later ones are known to be among the N of their step. Below 0: not even that.
        """
        targets = batch.targets.double()
        vectors = batch.inputs[..., : self.d_symbol].double()
        result = torch.zeros_like(targets)
        everywhere = torch.arange(self.n_ctx, device=targets.device)
        for step, part in zip(self.due, self.parts.values(), strict=True):
            if step <= reached:
                result[..., part] = targets[..., part]
            elif reached >= 0:
                block = self.n_steps - step if self.order == "backward" else step - 1
                seconds = (
                    (everywhere // (2 * self.n_chains) == block)
                    & (everywhere % 2 == 1)
                    & (everywhere < 2 * self.n_pairs)
                )
                result[..., part] = vectors[:, seconds].mean(1, keepdim=True)
        return result.masked_fill(~batch.scored[..., None], torch.nan)

    def loss(self, outputs: Float[Tensor, "batch pos d_output"], batch: Batch) -> Float[Tensor, ""]:
        """Mean squared error over the queries."""
        return metrics.squared_error(outputs, batch.targets)[batch.scored].mean()


@lru_cache
def _codes(n_pairs: int, n_chains: int, width: int, of_queries: str) -> Float[Tensor, "pos width"]:
    number = torch.cat((torch.arange(n_pairs).repeat_interleave(2), n_pairs + torch.arange(n_chains)))
    angle = number[:, None] * _BASE ** (-torch.arange(0, width, 2) / width)
    result = torch.cat((angle.cos(), angle.sin()), -1)
    if of_queries == "none":
        result[2 * n_pairs :] = 0
    return result


def symbol_name(step: int) -> str:
    """The symbol at a place in the chain, as in the source: A for x_0, B for x_1; beyond Z its number."""
    return chr(ord("A") + step) if step < 26 else f"x{step}"


def position_names(task: Retrieval) -> list[str]:
    """AB1.A and AB1.B, the symbols of the first pair of step 1, and so on to query1, …, queryN."""
    steps = range(task.n_steps) if task.order == "forward" else range(task.n_steps - 1, -1, -1)
    pairs = [
        f"{symbol_name(step)}{symbol_name(step + 1)}{i + 1}.{symbol_name(step + place)}"
        for step in steps
        for i in range(task.n_chains)
        for place in range(2)
    ]
    return [*pairs, *(f"query{i + 1}" for i in range(task.n_chains))]


TASKS.add(Retrieval.name, Retrieval)
POSITION_NAMES.add(Retrieval.name, position_names)
