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

from mnemoscope.core import metrics
from mnemoscope.core.batch import Batch
from mnemoscope.core.bigrams import MAX_SYMBOLS, Counts, bigrams
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.markov import AliasTable, alias_table, walk
from mnemoscope.core.presets import PRESETS, SYSTEMS, Part, Preset, System
from mnemoscope.core.specification import TASKS, ModelSpec, Recipe
from mnemoscope.core.triggers import by_frequency, latents, prescribed


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
    """Bigram counts of another text (`core.bigrams.count_bigrams`); none: tiny Shakespeare."""

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
        """Those of `core.triggers`, and `is_noise`: a trigger stands here whose target is the noise token."""
        found = latents(batch)
        is_noise = (found["occurrence"] > 0) & (batch.targets == self.noise_token)
        return {**found, "is_noise": is_noise}

    def subgroups(self, batch: Batch) -> dict[str, Bool[Tensor, " batch"]]:
        """None: there is one kind of sequences."""
        return {}

    def skills(self, batch: Batch) -> dict[str, Bool[Tensor, "batch pos"]]:
        """By what stands at a position and what follows it.

        `in_context`: a trigger that occurred before, followed by its output. `noise`: a trigger, followed by the noise
        token. `global`: no trigger.
        """
        occurrence, is_noise = batch.latents["occurrence"], batch.latents["is_noise"]
        return {"in_context": (occurrence > 1) & ~is_noise, "noise": is_noise, "global": occurrence == 0}

    def loss(self, outputs: Float[Tensor, "batch pos d_vocab"], batch: Batch) -> Float[Tensor, ""]:
        """Mean cross-entropy over the scored positions, in nats."""
        losses = metrics.cross_entropy(outputs, batch.targets)
        return (losses * batch.scored).sum() / batch.scored.sum().clamp(min=1)


@lru_cache
def _tables(
    task: NoisyRecall, device: str
) -> tuple[AliasTable, Float[Tensor, " symbol"], Float[Tensor, "trigger symbol"]]:
    """The chain with the noise token in a form to draw from, the unigram distribution, and that of the outputs."""
    n = task.noise_token
    chain = torch.zeros(n + 1, n + 1, dtype=torch.double)
    chain[:n, :n], chain[n, :n] = task.transitions, task.unigram
    outputs = torch.ones(n, n, dtype=torch.double)
    if not task.loops:
        outputs.fill_diagonal_(0)
    outputs /= outputs.sum(1, keepdim=True)
    return alias_table(chain).to(device), task.unigram.to(device), outputs.to(device)


# ---- preset and recipes

_PRESET = Preset(
    summary="2 layers, fixed triggers, half of the outputs replaced by noise",
    task=NoisyRecall(length=128),
    model=ModelSpec(d_model=64, n_heads=1, n_layers=2, d_mlp=64, normalization="none"),
    recipes={
        "quick": Recipe(
            name="quick",
            n_steps=1000,
            batch_size=32,
            learning_rate=6e-3,
            beta2=0.98,
            metrics_every=25,
            checkpoint_steps=tuple(range(0, 1000, 25)),
        ),
        "published": Recipe(name="published", n_steps=4000, batch_size=512, learning_rate=1e-3, metrics_every=25),
    },
    sizes={"published": {"task.length": 256, "model.d_model": 256, "model.d_mlp": 1024}},
)

TASKS.add(NoisyRecall.name, NoisyRecall)
PRESETS.add("noisy-recall", _PRESET)


def _part(recipe: str, first: int, n: int) -> tuple[Part, ...]:
    return (Part(recipe=recipe, presets=("noisy-recall",), seeds=tuple(range(first, first + n))),)


_SYSTEM = System(
    summary="in-context recall against a noise token that always may follow",
    quick=_part("quick", 48, 4),
    full=_part("published", 16, 16),
    shipped=_part("quick", 16, 16),
)
SYSTEMS.add("noisy-recall", _SYSTEM)
