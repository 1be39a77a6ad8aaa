"""In-context bigrams and noisy recall.

In-context bigrams: a Markov chain over characters in which some tokens get a successor of the sequence's own.

A sequence has K *trigger* tokens q and one *output* token o for each. From the unigram distribution on it follows the
global bigrams of a text, but a trigger is always followed by its output. At the first occurrence of a trigger its
output cannot be known; from the second on it can be read from the context, which takes an induction head. Everywhere
else the global bigrams are all there is to know.

Inputs are all tokens but the last, targets all but the first. System S3, "birth" (Bietti et al. 2023, "Birth of a
Transformer: A Memory Viewpoint"); the bigrams are those of tiny Shakespeare unless another table is given.

Noisy recall: in-context bigrams in which a noise token often stands in the place of a trigger's output.

As in in-context bigrams a sequence has K trigger tokens with one output token each, uniform over the symbols, and
follows global bigrams otherwise. One more token, the last, is the *noise token*: with probability alpha (`noise`) it
follows a trigger instead of the output. After it the chain goes on from the unigram distribution. What follows a
trigger can thus be predicted in two ways: "often the noise token" is true of every sequence, a global bigram that can
be stored in weights; which other token it is must be read from the context.

Inputs are all tokens but the last, targets all but the first. System S6, "noisy-recall" (Chen, Bruna & Bietti 2024,
"How Truncating Weights Improves Reasoning in Language Models").
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope import TASKS, Batch, InputError, Site
from mnemoscope import generator as stream
from mnemoscope.core import IdealPart, in_range, one_of
from mnemoscope.systems.in_context_bigrams.ideal_learner import HiddenTriggers, global_bigram
from mnemoscope.systems.in_context_bigrams.markov import MAX_SYMBOLS, NEWLINE, Bigrams, Counts, bigrams, stationary
from mnemoscope.systems.in_context_bigrams.triggers import SPLITS, TriggerTask

FLOOR = 1e-6
"""Added to the attention before its logarithm is taken, where the output is perfect."""


@dataclass(frozen=True, kw_only=True)
class InContextBigrams(TriggerTask):
    """Global bigrams, and K triggers whose successor differs from sequence to sequence."""

    name: ClassVar[str] = "in-context-bigrams"

    outputs: Literal["uniform", "bigram"] = "uniform"
    """Distribution of a trigger's output: uniform over the tokens, or the global bigrams' of that trigger."""
    loops: bool = True
    """Whether a trigger may be its own output; the rest of the sequence is then that token."""
    held_out: float = 0.0
    """Share of the tokens that are never outputs in training, and the only outputs of the split `test`."""
    loss_on: Literal["all", "predictable"] = "all"
    """Where loss and metrics look: at every position, or where a trigger stands that has occurred before."""
    counts: Counts | None = None
    """Bigram counts of another text (`bigrams.count_bigrams`); none: tiny Shakespeare."""
    split_seed: int | None = None
    """Seed of the choice of held-out tokens; none: the seed of the run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range("task.held_out", self.held_out, 0, 1)
        if self.held_out and self.outputs == "bigram":
            raise InputError("task.held_out needs uniform outputs; set task.outputs to uniform")
        if self.held_out and not 2 <= self.n_held_out <= self.d_vocab - 2:
            raise InputError(
                f"task.held_out must leave two tokens or more on either side; got {self.held_out} of {self.d_vocab}"
            )

    @property
    def bigrams(self) -> Bigrams:
        """The global table."""
        return bigrams(self.counts)

    @property
    def unigram(self) -> Float[Tensor, " token"]:
        """The share of every symbol in the text."""
        return self.bigrams.unigram

    @property
    def chain(self) -> Float[Tensor, "token token"]:
        """The global bigrams."""
        return self.bigrams.transitions

    @property
    def symbols(self) -> str:
        """The symbols of the text."""
        return self.bigrams.symbols

    @property
    def n_held_out(self) -> int:
        """Tokens that are never outputs in training."""
        return round(self.held_out * self.d_vocab)

    def for_seed(self, seed: int) -> "InContextBigrams":
        """The same task with the held-out tokens of the replicate `seed`, unless there are none or they are fixed."""
        return self if not self.held_out or self.split_seed is not None else replace(self, split_seed=seed)

    def may_be_output(self, split: str) -> Bool[Tensor, " token"]:
        """True for tokens that can be the output of a trigger in a split.

        Raises:
            InputError: There is no such split, or tokens are held out and none is chosen yet.
        """
        one_of("split", split, SPLITS)
        if not self.held_out or split == "all":
            return torch.ones(self.d_vocab, dtype=torch.bool)
        if self.split_seed is None:
            raise InputError("task.split_seed is not set: choose one, or take task.for_seed(seed)")
        held = torch.zeros(self.d_vocab, dtype=torch.bool)
        held[torch.randperm(self.d_vocab, generator=stream(self.split_seed, "held out"))[: self.n_held_out]] = True
        return held if split == "test" else ~held

    def output_probabilities(self, split: str) -> Float[Tensor, "trigger token"]:
        """Distribution of the output of every token, should it be a trigger, float64."""
        shape = (self.d_vocab, self.d_vocab)
        table = torch.ones(shape, dtype=torch.double) if self.outputs == "uniform" else self.bigrams.transitions.clone()
        table = table * self.may_be_output(split)
        if not self.loops:
            table.fill_diagonal_(0)
        return table / table.sum(1, keepdim=True)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text; ⏎ is a newline. An `InputError` names a symbol that is not in the table."""
        return self.bigrams.encode(text)

    def batch(
        self,
        tokens: Int[Tensor, "batch token"],
        triggers: Int[Tensor, "batch trigger"],
        outputs: Int[Tensor, "batch trigger"],
    ) -> Batch:
        """As for every task with triggers, scored where `loss_on` says."""
        batch = super().batch(tokens, triggers, outputs)
        return batch if self.loss_on == "all" else replace(batch, scored=batch.latents["occurrence"] > 1)

    def skills(self, batch: Batch) -> dict[str, Bool[Tensor, "batch pos"]]:
        """`in_context`: a trigger that occurred before; `global`: no trigger, where that is scored."""
        occurrence = batch.latents["occurrence"]
        return {"in_context": occurrence > 1, **({"global": occurrence == 0} if self.loss_on == "all" else {})}

    def allowed_outputs(self, batch: Batch) -> Bool[Tensor, "batch trigger token"]:
        """Outputs that the task allows, on the same side of the split."""
        allowed = super().allowed_outputs(batch)
        if self.held_out and self.split_seed is not None:
            held = self.may_be_output("test").to(allowed.device)
            allowed = allowed & (held == held[batch.known["outputs"]][..., None])
        return allowed

    def ideal_parts(self) -> dict[str, IdealPart]:
        """A perfect W_O^2: each position gives the logarithm of its attention in layer 1 to every token."""

        def copied(inputs: Int[Tensor, "batch pos"], pattern: Float[Tensor, "batch query key"]) -> Tensor:
            tokens = torch.arange(self.d_vocab, device=inputs.device)
            return (pattern @ (inputs[..., None] == tokens).to(pattern.dtype) + FLOOR).log()

        return {
            "perfect-output": IdealPart(site="logits", value=copied, reads=(Site(kind="pattern", layer=1, head=0),))
        }

    def corrupt(self, batch: Batch, *, kind: str, generator: torch.Generator) -> Batch:
        """Minimal pairs of the kind `exchange_output`, as for every task with triggers.

        The new output is on the same side of the split, and the pairs are scored where the clean sequences are.
        """
        return replace(super().corrupt(batch, kind=kind, generator=generator), scored=batch.scored)


TASKS.add(InContextBigrams.name, InContextBigrams)


NOISE_SYMBOL = "¤"
"""How the noise token is typed and shown."""


@dataclass(frozen=True, kw_only=True)
class NoisyRecall(TriggerTask):
    """Triggers that are followed by an output of the sequence's own, or by a noise token."""

    name: ClassVar[str] = "noisy-recall"

    triggers: Literal["random", "fixed"] = "fixed"
    """random: drawn for every sequence from the unigram distribution, without replacement; fixed: always the same."""
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
        super().__post_init__()
        in_range("task.noise", self.noise, 0, 1)

    @property
    def unigram(self) -> Float[Tensor, " symbol"]:
        """The probability of every symbol at the start and after the noise token."""
        n = self.n_tokens
        return bigrams(self.counts).unigram if n is None else torch.full((n,), 1 / n, dtype=torch.double)

    @property
    def chain(self) -> Float[Tensor, "token token"]:
        """The global bigrams of the symbols; the noise token never comes, and is followed as the unigrams say."""
        n, unigram = self.noise_token, self.unigram
        chain = torch.zeros(n + 1, n + 1, dtype=torch.double)
        chain[:n, :n] = bigrams(self.counts).transitions if self.n_tokens is None else unigram
        chain[n, :n] = unigram
        return chain

    @property
    def noise_token(self) -> int:
        """The last token; as many as there are symbols."""
        return len(bigrams(self.counts).symbols) if self.n_tokens is None else self.n_tokens

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols of the text, or numbers, and a sign for the noise token."""
        text = bigrams(self.counts).symbols if self.n_tokens is None else map(str, range(self.n_tokens))
        return (*text, NOISE_SYMBOL)

    @property
    def d_vocab(self) -> int:
        """The symbols and the noise token."""
        return self.noise_token + 1

    def output_probabilities(self, split: str) -> Float[Tensor, "trigger symbol"]:
        """Uniform over the symbols, without the trigger itself unless `loops`; every split has the same outputs."""
        one_of("split", split, SPLITS)
        outputs = torch.ones(self.noise_token, self.noise_token, dtype=torch.double)
        if not self.loops:
            outputs.fill_diagonal_(0)
        return outputs / outputs.sum(1, keepdim=True)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text: ¤ is the noise token and ⏎ a newline; numbers are separated by spaces."""
        tokens = {symbol: token for token, symbol in enumerate(self.symbols)}
        tokens = {NEWLINE: tokens["\n"], **tokens} if "\n" in tokens else tokens
        words = list(text) if self.n_tokens is None else text.split()
        if unknown := [word for word in words if word not in tokens]:
            raise InputError(f"{self.name} has no symbol {unknown[0]!r}; it has {' '.join(self.symbols)!r}")
        return [tokens[word] for word in words]

    def known(self, device: str) -> HiddenTriggers:
        """The ideal learner's knowledge of the task, on a device."""
        return replace(super().known(device), noise=self.noise, noise_token=self.noise_token)

    def global_bigram(self, device: str) -> Float[Tensor, "token next_token"]:
        """The distribution after every token on average over sequences.

        After a fixed trigger it is the noise token with probability alpha, else any output.
        """
        return global_bigram(self.known(device))

    def long_run(self, device: str) -> Float[Tensor, " token"]:
        """The share of every token in the long run, in the chain of these averages."""
        return _long_run(self, device)

    def latents(self, batch: Batch) -> dict[str, Tensor]:
        """The latents of `TriggerTask` and two more.

        `is_noise`: a trigger stands here whose target is the noise token. `shown`: how often the trigger that stands
        here has been followed by its output before; 0: never, or there is no trigger.
        """
        found = super().latents(batch)
        place, here = found["trigger"].clamp(min=0)[..., None], found["occurrence"] > 0
        is_noise = here & (batch.targets == self.noise_token)
        shows = torch.zeros(*here.shape, self.n_triggers, dtype=torch.long, device=here.device)
        shows.scatter_(2, place, (here & ~is_noise).long()[..., None])
        before = (shows.cumsum(1) - shows).gather(2, place)[..., 0]
        return {**found, "is_noise": is_noise, "shown": before * here}

    def skills(self, batch: Batch) -> dict[str, Bool[Tensor, "batch pos"]]:
        """By what stands at a position and what follows it.

        `in_context`: a trigger, followed by its output, which has followed it before. `noise`: a trigger, followed by
        the noise token. `global`: no trigger.
        """
        known = batch.latents
        in_context = (known["shown"] > 0) & ~known["is_noise"]
        return {"in_context": in_context, "noise": known["is_noise"], "global": known["occurrence"] == 0}


@lru_cache
def _long_run(task: NoisyRecall, device: str) -> Float[Tensor, " token"]:
    return stationary(task.global_bigram(device))


TASKS.add(NoisyRecall.name, NoisyRecall)
