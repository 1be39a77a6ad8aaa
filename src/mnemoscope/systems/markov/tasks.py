"""In-context Markov chains: every sequence follows a chain of its own, and the next symbol is read from the context.

A sequence is `length` symbols of a chain whose rows are drawn for it, the first from the chain's stationary shares. The
model sees all but the last, and every next symbol is scored. Priors of chains, in shares of the sequences:

- rows drawn alike from all distributions (Dirichlet(1)), where nothing else is said;
- doubly stochastic: all symbols are equally frequent, so that the unigram says nothing;
- equal rows: the next symbol does not depend on the current one, so that only the unigram says anything.

With `n_chains` there are finitely many chains, drawn once a replicate; the split `test` then has new ones.

System S12 (Edelman et al. 2024, "The evolution of statistical induction heads: in-context learning Markov chains",
arXiv 2402.11004; finitely many chains: Park et al. 2024, "Competition dynamics shape algorithmic phases of in-context
learning", arXiv 2412.01003). Doubly stochastic chains are mixtures of permutations here (`chains`).
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope import TASKS, BaseTask, Batch, InputError
from mnemoscope import generator as stream
from mnemoscope.core import in_range, one_of
from mnemoscope.systems.markov import chains, predictors

SPLITS = ("train", "test")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
N_GRAMS = {"unigram": 1, "bigram": 2, "trigram": 3}
RETRIEVAL = ("unigram_retrieval", "bigram_retrieval")
KINDS = ("dirichlet", "doubly stochastic", "equal rows")
"""Priors, in the order of the latent `kind`."""


N_TRIES, N_CANDIDATES = 4, 64
"""Exchanges that are tried for a sequence, and then single symbols."""


def _references(task: "MarkovChains") -> tuple[str, ...]:
    """The exact predictors that there are for chains of this kind."""
    n_grams = [name for name, size in N_GRAMS.items() if size <= task.order + 1]
    several = task.doubly_stochastic + task.equal_rows > 0
    closed = task.n_chains is None and (task.n_symbols == 2 or not task.doubly_stochastic)
    posterior = ["posterior"] if several and closed else []
    retrieval = [] if task.n_chains is None else RETRIEVAL
    return ("uniform", *n_grams, *posterior, *retrieval, "chain")


@dataclass(frozen=True, kw_only=True)
class MarkovChains(BaseTask):
    """Predict the next symbol of a chain that the sequence alone shows."""

    name: ClassVar[str] = "markov-chains"
    references: ClassVar[tuple[str, ...]] = property(_references)  # pyright: ignore[reportAssignmentType]
    corruptions: ClassVar[tuple[str, ...]] = ("relabel", "swap_segments")

    n_symbols: int = 3
    """k."""
    length: int = 100
    """Symbols of a sequence, of which the model sees all but the last; 4 or more."""
    order: int = 1
    """Symbols that the next one depends on: 1, or 2 (n = 3)."""
    doubly_stochastic: float = 0.0
    """Share of the chains that are doubly stochastic."""
    equal_rows: float = 0.0
    """Share of the chains whose rows are equal."""
    n_chains: int | None = None
    """Number of chains that there are; none: each sequence has a new one."""
    chains_seed: int | None = None
    """Seed of finitely many chains; none: the seed of the run."""

    def __post_init__(self) -> None:
        in_range("task.n_symbols", self.n_symbols, 2, len(LETTERS))
        in_range("task.length", self.length, 4, math.inf)
        in_range("task.order", self.order, 1, 2)
        in_range("task.doubly_stochastic", self.doubly_stochastic, 0, 1)
        in_range("task.equal_rows", self.equal_rows, 0, 1 - self.doubly_stochastic)
        if self.doubly_stochastic and (self.order > 1 or self.n_symbols > chains.MAX_PERMUTED):
            raise InputError(
                f"task.doubly_stochastic needs task.order 1 and task.n_symbols up to {chains.MAX_PERMUTED}; got "
                f"{self.order} and {self.n_symbols}"
            )
        if self.n_chains is not None:
            in_range("task.n_chains", self.n_chains, 1, 4096)
            if self.order > 1:
                raise InputError(f"task.n_chains needs task.order 1; got {self.order}")

    @property
    def d_vocab(self) -> int:
        """The symbols."""
        return self.n_symbols

    @property
    def n_ctx(self) -> int:
        """All symbols but the last."""
        return self.length - 1

    @property
    def n_states(self) -> int:
        """Contexts that a row belongs to."""
        return self.n_symbols**self.order

    def for_seed(self, seed: int) -> "MarkovChains":
        """The same task with the chains of the replicate `seed`, unless they are new for each sequence, or fixed."""
        return self if self.n_chains is None or self.chains_seed is not None else replace(self, chains_seed=seed)

    def symbol(self, token: int) -> str:
        """A letter."""
        return LETTERS[token]

    # ---- generation

    def draw_chains(self, n: int, generator: torch.Generator) -> tuple[chains.Rows, Int[Tensor, " chain"]]:
        """`n` chains from the prior, and the kind of each."""
        level = torch.rand(n, generator=generator, device=generator.device, dtype=torch.double)
        kind = torch.where(level < self.doubly_stochastic, 1, 0)
        kind = torch.where(level >= 1 - self.equal_rows, 2, kind)
        rows = chains.dirichlet((n, self.n_states, self.n_symbols), generator)
        if self.doubly_stochastic:
            balanced = chains.doubly_stochastic(n, self.n_symbols, generator)
            rows = torch.where((kind == 1)[:, None, None], balanced, rows)
        rows = torch.where((kind == 2)[:, None, None], rows[:, :1].expand_as(rows), rows)
        return rows, kind

    def known_chains(self, device: str = "cpu") -> tuple[chains.Rows, Int[Tensor, " chain"]]:
        """The finitely many chains and their kinds; an `InputError` where there are none, or none is chosen yet."""
        if self.n_chains is None:
            raise InputError("task.n_chains must be a number for chains that are known; got none: set it")
        if self.chains_seed is None:
            raise InputError("task.chains_seed is not set: choose one, or take task.for_seed(seed)")
        rows, kind = _known_chains(self)
        return rows.to(device), kind.to(device)

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` independent sequences; of finitely many chains the split `test` has new ones."""
        one_of("split", split, SPLITS)
        which = torch.full((n,), -1, device=generator.device)
        if self.n_chains is not None and split == "train":
            every, kinds = self.known_chains(str(generator.device))
            which = torch.randint(self.n_chains, (n,), generator=generator, device=generator.device)
            rows, kind = every[which], kinds[which]
        else:
            rows, kind = self.draw_chains(n, generator)
        tokens = chains.walk(rows, self.order, self.length, generator)
        return self.batch(tokens, known={"transitions": rows, "kind": kind, "chain": which})

    def batch(self, tokens: Int[Tensor, "batch token"], *, known: dict[str, Tensor] | None = None) -> Batch:
        """Given sequences, with their last symbol; `known` may have their `transitions`, `kind` and `chain`."""
        return Batch(
            inputs=tokens[:, :-1],
            targets=tokens[:, 1:],
            scored=torch.ones_like(tokens[:, 1:], dtype=torch.bool),
            known=known or {},
            derive=self.latents,
            symbol=self.symbol,
        )

    def parse(self, text: str) -> Batch:
        """One sequence as typed, all of it inputs; the symbol after the last is not known, and not scored.

        Raises InputError where a symbol is none, or there are none, or too many.
        """
        symbols = [*text.replace(" ", "").replace(",", "")]
        for symbol in symbols:
            one_of("a symbol", symbol, LETTERS[: self.n_symbols])
        in_range("the number of symbols", len(symbols), 1, self.n_ctx)
        tokens = torch.tensor([[LETTERS.index(symbol) for symbol in symbols]])
        batch = self.batch(torch.nn.functional.pad(tokens, (0, 1)))
        return replace(batch, scored=batch.scored & (torch.arange(len(symbols)) < len(symbols) - 1))

    def latents(self, batch: Batch) -> dict[str, Tensor]:
        """Facts about each position: `occurrence`, how often its context stood before, and `attended`, the position
        after the last time; -1: there is none.
        """
        same = predictors.same_context(batch.inputs.long(), self.order, self.n_symbols)
        place = torch.arange(same.shape[1], device=same.device)
        return {"occurrence": same.sum(-1), "attended": torch.where(same, place + 1, -1).amax(-1)}

    def skills(self, batch: Batch) -> dict[str, Bool[Tensor, "batch pos"]]:
        """`seen`: the context stood before; `new`: it did not."""
        seen = batch.latents["occurrence"] > 0
        return {"seen": batch.scored & seen, "new": batch.scored & ~seen}

    # ---- exact predictors

    def reference(self, batch: Batch, name: str) -> Float[Tensor, "batch pos d_vocab"]:
        """An exact predictor of the next symbol (`predictors`); NaN at positions that are not scored.

        - `uniform`; `unigram`, `bigram`, `trigram`: from what followed the last 0, 1 or 2 symbols before.
        - `posterior`: weighs the priors of the task by the symbols so far, given the first. It has no closed form for
          doubly stochastic chains of more than two symbols.
        - `unigram_retrieval`, `bigram_retrieval`: weigh finitely many chains by the symbols so far.
        - `chain`: knows the chain of the sequence, from the first whole context on; NaN where the batch does not know
          it.
        """
        one_of("reference", name, self.references)
        result = self._predicted(batch.inputs.long(), batch, name)
        return torch.where(batch.scored[..., None], result, math.nan)

    def _predicted(self, tokens: Int[Tensor, "batch pos"], batch: Batch, name: str) -> predictors.Predicted:
        size, k = (*tokens.shape, self.n_symbols), self.n_symbols
        if name == "uniform":
            return torch.full(size, 1 / k, dtype=torch.double, device=tokens.device)
        if name in N_GRAMS:
            return predictors.n_gram(tokens, N_GRAMS[name], k)
        if name == "posterior":
            return self._posterior(tokens)
        if name in RETRIEVAL:
            rows, _ = self.known_chains(str(tokens.device))
            return predictors.retrieved(tokens, rows, chains.stationary(rows), by=1 + RETRIEVAL.index(name))[0]
        if "transitions" not in batch.known:
            return torch.full(size, math.nan, dtype=torch.double, device=tokens.device)
        state = predictors.contexts(tokens, self.order, k)
        found = batch.known["transitions"].double().gather(1, state.clamp(min=0)[..., None].expand(size))
        return found.masked_fill((state < 0)[..., None], math.nan)

    def _posterior(self, tokens: Int[Tensor, "batch pos"]) -> predictors.Predicted:
        """The mean of the predictors of the priors that have a share, weighted by what they gave to the symbols."""
        shares = {
            "rows": 1 - self.doubly_stochastic - self.equal_rows,
            "balanced": self.doubly_stochastic,
            "equal": self.equal_rows,
        }
        each = {
            "rows": lambda: predictors.n_gram(tokens, self.order + 1, self.n_symbols),
            "balanced": lambda: predictors.stay_or_move(tokens),
            "equal": lambda: predictors.n_gram(tokens, 1, self.n_symbols),
        }
        there = [prior for prior, share in shares.items() if share > 0]
        return predictors.mixed(tokens, [each[prior]() for prior in there], [shares[prior] for prior in there])[0]

    # ---- counterfactuals

    def corrupt(self, batch: Batch, *, kind: str, generator: torch.Generator) -> Batch:
        """Minimal pairs.

        - `relabel`: all symbols of a sequence move on by the same random number, modulo k. The answer changes at every
          position, and the prediction of every n-gram moves with it.
        - `swap_segments`: of three random places with one context the two segments between them are exchanged. All
          counts stay, and so does the answer at the last position. A sequence in which no exchange is found that makes
          a difference gets another symbol at one place, such that the symbol that followed its last context most often
          stays the same.

        Raises InputError where sequences are too short for that.
        """
        one_of("kind", kind, self.corruptions)
        tokens = torch.cat((batch.inputs, batch.targets[:, -1:]), 1).long()
        known = dict(batch.known)
        if kind == "relabel":
            draws = torch.randint(self.n_symbols - 1, (len(tokens), 1), generator=generator, device=generator.device)
            by = 1 + draws.to(tokens.device)
            tokens = (tokens + by) % self.n_symbols
            if known:
                known |= {"transitions": self._relabelled(known["transitions"], by), "chain": known["chain"] * 0 - 1}
        else:
            tokens = self._rearranged(tokens, generator)
        return replace(self.batch(tokens, known=known), weights=batch.weights, scored=batch.scored)

    def _relabelled(self, rows: chains.Rows, by: Int[Tensor, "batch 1"]) -> chains.Rows:
        """The rows of chains whose symbols move on by a number each."""
        k = self.n_symbols
        states = torch.arange(self.n_states, device=rows.device)
        before = sum((states // k**digit % k - by) % k * k**digit for digit in range(self.order))
        symbols = (torch.arange(k, device=rows.device) - by) % k
        rows = rows.gather(1, torch.as_tensor(before)[..., None].expand_as(rows))
        return rows.gather(2, symbols[:, None].expand_as(rows))

    def _rearranged(self, tokens: Int[Tensor, "batch token"], generator: torch.Generator) -> Int[Tensor, "batch token"]:
        """Other sequences with the same likeliest symbol at the end."""
        result = tokens.clone()
        for change in (*[self._swapped] * N_TRIES, self._replaced):
            same = (result == tokens).all(1)
            if same.any():
                result[same] = change(tokens[same], generator)
        return result

    def _replaced(self, tokens: Int[Tensor, "batch token"], generator: torch.Generator) -> Int[Tensor, "batch token"]:
        """Sequences with another symbol at one place, after which the likeliest symbol at the end is the same."""
        size = (len(tokens), N_CANDIDATES)
        draws = torch.rand((2, *size), generator=generator, device=generator.device, dtype=torch.float32)
        draws = draws.to(tokens.device)
        place = (draws[0] * (tokens.shape[1] - 2)).long()  # neither the last input nor what follows
        old = tokens.gather(1, place)
        new = (old + 1 + (draws[1] * (self.n_symbols - 1)).long()) % self.n_symbols
        changed = tokens[:, None].repeat(1, N_CANDIDATES, 1).scatter(2, place[..., None], new[..., None])
        before, after = self._likeliest(tokens), self._likeliest(changed.flatten(0, 1)).view(size)
        keeps = after == before[:, None]
        if not keeps.any(1).all():
            raise InputError(
                "swap_segments needs sequences in which a change can leave the likeliest next symbol; got "
                f"one of {tokens.shape[1]} symbols without: raise task.length, or take kind='relabel'"
            )
        return changed[torch.arange(len(tokens), device=tokens.device), keeps.int().argmax(1)]

    def _likeliest(self, tokens: Int[Tensor, "batch token"]) -> Int[Tensor, " batch"]:
        """The symbol that followed the context of the last input most often; of equals the first."""
        context = predictors.contexts(tokens[:, :-1], self.order, self.n_symbols)
        there = (context[:, :-1] == context[:, -1:]) & (context[:, :-1] >= 0)
        followed = torch.nn.functional.one_hot(tokens[:, 1:-1], self.n_symbols) * there[..., None]
        return followed.sum(1).argmax(-1)

    def _swapped(self, tokens: Int[Tensor, "batch token"], generator: torch.Generator) -> Int[Tensor, "batch token"]:
        """Sequences with two segments exchanged, between three places with the same context before the last symbol."""
        n, n_seen = len(tokens), tokens.shape[1] - 1
        context = predictors.contexts(tokens[:, :-1], self.order, self.n_symbols)
        often = (context[:, :, None] == torch.arange(self.n_states, device=tokens.device)).sum(1)
        levels = torch.rand(
            (n, self.n_states + n_seen), generator=generator, device=generator.device, dtype=torch.float32
        ).to(tokens.device)
        chosen = levels[:, : self.n_states].masked_fill(often < 3, -1).argmax(1, keepdim=True)
        scores = levels[:, self.n_states :].masked_fill(context != chosen, -1)
        first, middle, last = scores.topk(3, 1).indices.sort(1).values[..., None].unbind(1)
        place = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        later = last - middle  # the length of the segment that moves to the front
        source = torch.where((place > first) & (place <= first + later), place + middle - first, place)
        source = torch.where((place > first + later) & (place <= last), place - later, source)
        possible = often.gather(1, chosen) >= 3
        return torch.where(possible, tokens.gather(1, source), tokens)

    def pair_report(self, clean: Batch, corrupted: Batch) -> dict[str, float]:
        """Shares: `answer_changed`, of pairs with another last symbol; `likeliest_changed`, of those in which another
        symbol followed the last context most often; `tokens_changed`, of the tokens.
        """
        one, other = (torch.cat((batch.inputs, batch.targets[:, -1:]), 1).long() for batch in (clean, corrupted))
        changes = {
            "answer_changed": one[:, -1] != other[:, -1],
            "likeliest_changed": self._likeliest(one) != self._likeliest(other),
            "tokens_changed": clean.inputs != corrupted.inputs,
        }
        return {what: float(changed.double().mean()) for what, changed in changes.items()}


@lru_cache
def _known_chains(task: MarkovChains) -> tuple[chains.Rows, Int[Tensor, " chain"]]:
    assert task.n_chains is not None
    assert task.chains_seed is not None
    return task.draw_chains(task.n_chains, stream(task.chains_seed, "chains"))


TASKS.add(MarkovChains.name, MarkovChains)
