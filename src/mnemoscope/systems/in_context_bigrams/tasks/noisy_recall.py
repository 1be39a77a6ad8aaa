"""Noisy recall: in-context bigrams in which a noise token often stands in the place of a trigger's output.

As in in-context bigrams a sequence has K trigger tokens with one output token each, uniform over the symbols, and
follows global bigrams otherwise. One more token, the last, is the *noise token*: with probability alpha (`noise`) it
follows a trigger instead of the output. After it the chain goes on from the unigram distribution. What follows a
trigger can thus be told in two ways: "often the noise token" holds in every sequence, is a global bigram and can be
stored in weights; which other token it is must be read from the context.

Inputs are all tokens but the last, targets all but the first. System S6, "noisy-recall" (Chen, Bruna & Bietti 2024,
"How Truncating Weights Improves Reasoning in Language Models").
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope import TASKS, Batch, InputError
from mnemoscope.core import in_range, metrics, one_of
from mnemoscope.systems.in_context_bigrams.bigrams import MAX_SYMBOLS, NEWLINE, Counts, bigrams, count_bigrams
from mnemoscope.systems.in_context_bigrams.ideal_learner import HiddenTriggers, global_bigram, predict
from mnemoscope.systems.in_context_bigrams.markov import AliasTable, alias_table, stationary, walk
from mnemoscope.systems.in_context_bigrams.output_exchange import changes, exchange, report
from mnemoscope.systems.in_context_bigrams.successive_sampling import Draws
from mnemoscope.systems.in_context_bigrams.triggers import by_frequency, first_outputs, latents, prescribed

NOISE_SYMBOL = "¤"
"""How the noise token is typed and shown."""


@dataclass(frozen=True, kw_only=True)
class NoisyRecall:
    """Triggers that are followed by an output of the sequence's own, or by a noise token."""

    name: ClassVar[str] = "noisy-recall"
    slot_size: ClassVar[int] = 1
    references: ClassVar[tuple[str, ...]] = ("unigram", "global_bigram", "in_context")
    corruptions: ClassVar[tuple[str, ...]] = ("exchange_output",)

    length: int = 256
    """Tokens that the model sees; 3 or more."""
    n_triggers: int = 5
    """K, the number of triggers a sequence."""
    triggers: Literal["random", "fixed"] = "fixed"
    """random: drawn for every sequence from the unigram distribution, without replacement; fixed: always the same."""
    first_rank: int = 0
    """Where fixed triggers start in the order of frequency; 0: the K most frequent symbols."""
    noise: float = 0.5
    """alpha, the probability that the noise token follows a trigger."""
    loops: bool = True
    """Whether a trigger may be its own output."""
    n_tokens: int | None = None
    """N, symbols of a chain whose tokens are independent and equally likely; none: the symbols of the text."""
    counts: Counts | None = None
    """Bigram counts of another text (`bigrams.count_bigrams`); none: tiny Shakespeare."""

    def __post_init__(self) -> None:
        if self.n_tokens is not None:
            in_range("task.n_tokens", self.n_tokens, 2, MAX_SYMBOLS)
            if self.counts is not None:
                raise InputError("task.counts is the table of a text; leave task.n_tokens out, or task.counts")
        in_range("task.length", self.length, 3, math.inf)
        in_range("task.n_triggers", self.n_triggers, 1, self.noise_token - 1)
        in_range("task.first_rank", self.first_rank, 0, self.noise_token - self.n_triggers)
        in_range("task.noise", self.noise, 0, 1)

    @property
    def unigram(self) -> Float[Tensor, " symbol"]:
        """How likely every symbol is at the start and after the noise token."""
        n = self.n_tokens
        return bigrams(self.counts).unigram if n is None else torch.full((n,), 1 / n, dtype=torch.double)

    @property
    def transitions(self) -> Float[Tensor, "symbol symbol"]:
        """The global bigrams of the symbols."""
        n = self.n_tokens
        return bigrams(self.counts).transitions if n is None else self.unigram.expand(n, -1)

    @property
    def noise_token(self) -> int:
        """The last token; as many as there are symbols."""
        return len(bigrams(self.counts).symbols) if self.n_tokens is None else self.n_tokens

    @property
    def symbols(self) -> tuple[str, ...]:
        """What every token is called: the symbols of the text, or numbers, and a sign for the noise token."""
        text = bigrams(self.counts).symbols if self.n_tokens is None else map(str, range(self.n_tokens))
        return (*text, NOISE_SYMBOL)

    @property
    def d_vocab(self) -> int:
        """The symbols and the noise token."""
        return self.noise_token + 1

    @property
    def answers(self) -> range:
        """Every token."""
        return range(self.d_vocab)

    @property
    def n_ctx(self) -> int:
        """The length."""
        return self.length

    @property
    def fixed_triggers(self) -> tuple[int, ...]:
        """The triggers, where they are fixed, from the most frequent on."""
        return by_frequency(self.unigram, self.first_rank, self.n_triggers)

    def with_text(self, text: str) -> dict[str, object]:
        """Fields that make this the task of another text.

        Raises:
            InputError: The text has too few symbols, or too many.
        """
        return {"counts": count_bigrams(text)}

    def for_seed(self, seed: int) -> "NoisyRecall":
        """The same task: nothing is held out."""
        return self

    # ---- generation

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` independent sequences; every split has the same distribution."""
        one_of("split", split, ("train", "test", "all"))
        device = generator.device
        table, unigram, probabilities = _tables(self, str(device))
        if self.triggers == "fixed":
            triggers = torch.tensor(self.fixed_triggers, device=device).expand(n, -1)
        else:
            triggers = torch.multinomial(unigram.expand(n, -1), self.n_triggers, generator=generator)
        outputs = torch.multinomial(probabilities[triggers].flatten(0, 1), 1, generator=generator).view_as(triggers)
        first = torch.multinomial(unigram, n, replacement=True, generator=generator)
        tokens = walk(
            first,
            table,
            self.length + 1,
            prescribed=prescribed(triggers, outputs, self.d_vocab),
            generator=generator,
            noise=self.noise,
            noise_token=self.noise_token,
        )
        return self.batch(tokens, triggers, outputs)

    def batch(
        self,
        tokens: Int[Tensor, "batch token"],
        triggers: Int[Tensor, "batch trigger"],
        outputs: Int[Tensor, "batch trigger"],
    ) -> Batch:
        """Given sequences, one token longer than what the model sees, with their triggers and outputs."""
        everywhere = torch.ones_like(tokens[:, 1:], dtype=torch.bool)
        known = {"triggers": triggers, "outputs": outputs}
        return Batch(inputs=tokens[:, :-1], targets=tokens[:, 1:], scored=everywhere, known=known, derive=self._latents)

    def parse(self, text: str) -> Batch:
        """One sequence of symbols as typed, all of them inputs.

        ¤ is the noise token and ⏎ a newline; numbers, where tokens are numbers, are separated by spaces.

        What follows the last is not known: its target is 0 and its position is not scored. Fixed triggers are known,
        with what else than noise first follows them as their output. Random ones are not: no position counts as one
        (trigger and output -1).

        Raises:
            InputError: There is no such symbol, or there are none, or more than `length`.
        """
        tokens = {symbol: token for token, symbol in enumerate(self.symbols)}
        tokens = {NEWLINE: tokens["\n"], **tokens} if "\n" in tokens else tokens
        words = list(text) if self.n_tokens is None else text.split()
        if unknown := [word for word in words if word not in tokens]:
            raise InputError(f"{self.name} has no symbol {unknown[0]!r}; it has {' '.join(self.symbols)!r}")
        in_range("the number of symbols", len(words), 1, self.length)
        inputs = torch.tensor([[tokens[word] for word in words]])
        triggers = torch.tensor([self.fixed_triggers if self.triggers == "fixed" else (-1,) * self.n_triggers])
        outputs = first_outputs(inputs, triggers, self.noise_token)
        batch = self.batch(torch.nn.functional.pad(inputs, (0, 1)), triggers, outputs)
        return replace(batch, scored=batch.scored & (torch.arange(len(words)) < len(words) - 1))

    def monitor(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """A sample: there is one kind of sequences."""
        batch = self.sample(n, split=split, generator=generator)
        return replace(batch, weights=torch.full((n,), 1 / n, device=generator.device))

    def enumerate(self, *, split: str) -> Batch:
        """Refused: there are too many sequences.

        Raises:
            InputError: Always.
        """
        one_of("split", split, ("train", "test", "all"))
        raise InputError(f"the sequences of {self.name} cannot be enumerated; draw samples")

    # ---- latents, skills

    def _latents(self, batch: Batch) -> dict[str, Tensor]:
        """Those of `core.triggers` and two more.

        `is_noise`: a trigger stands here whose target is the noise token. `shown`: how often the trigger that stands
        here has been followed by its output before; 0: never, or there is no trigger.
        """
        found = latents(batch)
        place, here = found["trigger"].clamp(min=0)[..., None], found["occurrence"] > 0
        is_noise = here & (batch.targets == self.noise_token)
        shows = torch.zeros(*here.shape, self.n_triggers, dtype=torch.long, device=here.device)
        shows.scatter_(2, place, (here & ~is_noise).long()[..., None])
        before = (shows.cumsum(1) - shows).gather(2, place)[..., 0]
        return {**found, "is_noise": is_noise, "shown": before * here}

    def subgroups(self, batch: Batch) -> dict[str, Bool[Tensor, " batch"]]:
        """None: there is one kind of sequences."""
        return {}

    def skills(self, batch: Batch) -> dict[str, Bool[Tensor, "batch pos"]]:
        """By what stands at a position and what follows it.

        `in_context`: a trigger, followed by its output, which has followed it before. `noise`: a trigger, followed by
        the noise token. `global`: no trigger.
        """
        known = batch.latents
        in_context = (known["shown"] > 0) & ~known["is_noise"]
        return {"in_context": in_context, "noise": known["is_noise"], "global": known["occurrence"] == 0}

    def loss(self, outputs: Float[Tensor, "batch pos d_vocab"], batch: Batch) -> Float[Tensor, ""]:
        """Mean cross-entropy over the scored positions, in nats."""
        losses = metrics.cross_entropy(outputs, batch.targets)
        return (losses * batch.scored).sum() / batch.scored.sum().clamp(min=1)

    # ---- exact predictors

    def reference(self, batch: Batch, name: str) -> Float[Tensor, "batch pos d_vocab"]:
        """An exact predictor of the next token, in float64; NaN at positions that are not scored.

        - `global_bigram`: what follows the token on average over sequences. Where it is a trigger for certain: the
          noise token with probability alpha, else any output.
        - `unigram`: how often each token occurs in the long run in the chain of these averages, whatever stands before.
        - `in_context`: the best prediction of one who knows the generator and sees the tokens so far; random triggers
          are hidden from it (`core.ideal_learner`). NaN where no triggers agree with the earlier tokens.
        """
        one_of("reference", name, self.references)
        known = _generator(self, str(batch.inputs.device))
        if name == "in_context":
            result = predict(batch.inputs, known)
        elif name == "global_bigram":
            result = global_bigram(known)[batch.inputs]
        else:
            result = _unigram(self, str(batch.inputs.device)).expand(*batch.inputs.shape, -1)
        return torch.where(batch.scored[..., None], result, math.nan)

    # ---- counterfactuals

    def corrupt(self, batch: Batch, *, kind: str, generator: torch.Generator) -> Batch:
        """Minimal pairs; "the answer" is the last one of the exchanged trigger that the context gives.

        - `exchange_output`: one trigger of the sequence gets another output wherever the old one followed it; the noise
          tokens and everything else stay (`core.output_exchange`). The answer changes.

        Raises:
            InputError: Another kind, or a sequence in which no trigger's answer can change (see `exchangeable`).
        """
        one_of("kind", kind, self.corruptions)
        known = _generator(self, str(batch.inputs.device))
        allowed = known.outputs[batch.known["triggers"]] > 0
        tokens, outputs = exchange(
            batch, allowed=allowed, chain=known.chain, generator=generator, noise_token=self.noise_token
        )
        return self.batch(tokens, batch.known["triggers"], outputs)

    def exchangeable(self, batch: Batch) -> Bool[Tensor, " batch"]:
        """Sequences in which the answer of some trigger changes with its output; nearly all."""
        return changes(batch, noise_token=self.noise_token).any(1)

    def pair_report(self, clean: Batch, corrupted: Batch) -> dict[str, float]:
        """How good the pairs of `exchange_output` are: shares of pairs, and of tokens.

        `answer_changed`; `impossible`: the corrupted sequence has a transition that the chain never makes;
        `tokens_changed`: how many tokens differ.
        """
        chain = _generator(self, str(clean.inputs.device)).chain
        return report(clean, corrupted, chain=chain, noise_token=self.noise_token)


@lru_cache
def _tables(
    task: NoisyRecall, device: str
) -> tuple[AliasTable, Float[Tensor, " symbol"], Float[Tensor, "trigger symbol"]]:
    """The chain with the noise token in a form to draw from, the unigram distribution, and that of the outputs."""
    known, n = _generator(task, device), task.noise_token
    return alias_table(known.chain.cpu()).to(device), task.unigram.to(device), known.outputs[:n, :n]


@lru_cache
def _generator(task: NoisyRecall, device: str) -> HiddenTriggers:
    """The chain with the noise token, and what else the ideal learner knows of a task."""
    n = task.noise_token
    chain, outputs = torch.zeros(2, n + 1, n + 1, dtype=torch.double)
    chain[:n, :n], chain[n, :n] = task.transitions, task.unigram
    outputs[:n, :n] = 1
    if not task.loops:
        outputs.fill_diagonal_(0)
    outputs[:n] /= outputs[:n].sum(1, keepdim=True)
    weights = torch.nn.functional.pad(task.unigram, (0, 1)).to(device)
    return HiddenTriggers(
        chain=chain.to(device),
        outputs=outputs.to(device),
        triggers=Draws(weights, task.n_triggers) if task.triggers == "random" else task.fixed_triggers,
        noise=task.noise,
        noise_token=n,
    )


@lru_cache
def _unigram(task: NoisyRecall, device: str) -> Float[Tensor, " token"]:
    """How often every token occurs in the long run."""
    return stationary(global_bigram(_generator(task, device)))


TASKS.add(NoisyRecall.name, NoisyRecall)
