"""Markov chains over tokens in which some tokens, the triggers, have a successor of the sequence's own.

What in-context bigrams and noisy recall share: K triggers per sequence with one output each, drawn or fixed; the chain
that sequences follow otherwise; where triggers stand; exact predictors, and minimal pairs. A task adds its chain, the
distribution of its outputs and, perhaps, a noise token that can take the place of an output.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope import BaseTask, Batch, InputError
from mnemoscope.core import in_range, one_of
from mnemoscope.systems.in_context_bigrams.ideal_learner import HiddenTriggers, predict
from mnemoscope.systems.in_context_bigrams.markov import AliasTable, alias_table, count_bigrams, walk
from mnemoscope.systems.in_context_bigrams.output_exchange import changes, exchange, report
from mnemoscope.systems.in_context_bigrams.successive_sampling import Draws

SPLITS = ("train", "test", "all")


@dataclass(frozen=True, kw_only=True)
class TriggerTask(BaseTask):
    """K triggers, the chain around them, and all that follows from both."""

    references: ClassVar[tuple[str, ...]] = ("unigram", "global_bigram", "in_context")
    corruptions: ClassVar[tuple[str, ...]] = ("exchange_output",)

    length: int = 256
    """Tokens that the model sees; 3 or more."""
    n_triggers: int = 5
    """K, the number of triggers per sequence."""
    triggers: Literal["random", "fixed"] = "random"
    """random: drawn for every sequence from the unigram distribution, without replacement; fixed: always the same."""
    first_rank: int = 0
    """Where fixed triggers start in the order of frequency; 0: the K most frequent tokens."""

    def __post_init__(self) -> None:
        n = len(self.unigram)
        in_range("task.length", self.length, 3, math.inf)
        in_range("task.n_triggers", self.n_triggers, 1, n - 1)
        in_range("task.first_rank", self.first_rank, 0, n - self.n_triggers)

    # ---- what a task adds, or replaces

    @property
    @abstractmethod
    def unigram(self) -> Float[Tensor, " symbol"]:
        """The probability of every symbol as the first token, and as a trigger."""

    @property
    @abstractmethod
    def chain(self) -> Float[Tensor, "state token"]:
        """The distribution after every token but triggers, float64; a noise token comes last and never follows."""

    @property
    @abstractmethod
    def symbols(self) -> Sequence[str]:
        """The names of all tokens."""

    @abstractmethod
    def output_probabilities(self, split: str) -> Float[Tensor, "trigger token"]:
        """Distribution of the output of every symbol, should it be a trigger, float64."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""

    @abstractmethod
    def skills(self, batch: Batch) -> dict[str, Bool[Tensor, "batch pos"]]:
        """The positions at which a named skill, and nothing else, gives the answer."""

    def known(self, device: str) -> HiddenTriggers:
        """The ideal learner's knowledge of the task, on a device."""
        return _known(self, device)

    def global_bigram(self, device: str) -> Float[Tensor, "token next_token"]:
        """The distribution after every token, as if there were no triggers."""
        return self.known(device).chain

    def long_run(self, device: str) -> Float[Tensor, " token"]:
        """The share of every token, as if there were no triggers."""
        return self.unigram.to(device)

    # ---- sizes

    @property
    def d_vocab(self) -> int:
        """Number of tokens."""
        return len(self.symbols)

    @property
    def n_ctx(self) -> int:
        """The length."""
        return self.length

    @property
    def fixed_triggers(self) -> tuple[int, ...]:
        """The triggers, where they are fixed, from the most frequent on."""
        return by_frequency(self.unigram, self.first_rank, self.n_triggers)

    def with_text(self, text: str) -> dict[str, object]:
        """Fields that make this the task of another text; an `InputError` where it has too few symbols, or too many."""
        return {"counts": count_bigrams(text)}

    # ---- generation

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` independent sequences whose outputs are those of `split`."""
        device = generator.device
        probabilities, unigram = _outputs(self, split, str(device)), self.unigram.to(device)
        if self.triggers == "fixed":
            triggers = torch.tensor(self.fixed_triggers, device=device).expand(n, -1)
        else:
            triggers = torch.multinomial(unigram.expand(n, -1), self.n_triggers, generator=generator)
        outputs = torch.multinomial(probabilities[triggers].flatten(0, 1), 1, generator=generator).view_as(triggers)
        first = torch.multinomial(unigram, n, replacement=True, generator=generator)
        known = self.known(str(device))
        tokens = walk(
            first,
            _alias_table(self, str(device)),
            self.length + 1,
            prescribed=prescribed(triggers, outputs, self.d_vocab),
            generator=generator,
            noise=known.noise,
            noise_token=known.noise_token,
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
        return Batch(inputs=tokens[:, :-1], targets=tokens[:, 1:], scored=everywhere, known=known, derive=self.latents)

    def parse(self, text: str) -> Batch:
        """One sequence of symbols as typed, all of them inputs.

        The token after the last is not known: its target is 0 and its position is not scored. Fixed triggers are known,
        with what first follows them, other than noise, as their output. Random ones are not: no position counts as one
        (trigger and output -1).

        Raises:
            InputError: There is no such symbol, or there are none, or more than `length`.
        """
        tokens = self.encode(text)
        in_range("the number of symbols", len(tokens), 1, self.length)
        inputs = torch.tensor([tokens])
        triggers = torch.tensor([self.fixed_triggers if self.triggers == "fixed" else (-1,) * self.n_triggers])
        outputs = first_outputs(inputs, triggers, self.known("cpu").noise_token)
        batch = self.batch(torch.nn.functional.pad(inputs, (0, 1)), triggers, outputs)
        return replace(batch, scored=batch.scored & (torch.arange(len(tokens)) < len(tokens) - 1))

    def enumerate(self, *, split: str) -> Batch:
        """Raises an `InputError`: there are too many sequences."""
        one_of("split", split, SPLITS)
        raise InputError(f"the sequences of {self.name} cannot be enumerated; draw samples")

    # ---- latents, loss

    def latents(self, batch: Batch) -> dict[str, Tensor]:
        """The places of triggers, in a batch that knows its `triggers`.

        `trigger`: the place of the current token among the triggers, -1: it is none. `occurrence`: how often the
        trigger has occurred, this time included; 0: no trigger. `attended`: the position after the last earlier
        occurrence of the trigger; -1: there is none.
        """
        is_trigger = batch.inputs[:, :, None] == batch.known["triggers"][:, None]
        count = is_trigger.cumsum(1)
        place = torch.arange(1, batch.inputs.shape[1] + 1, device=batch.inputs.device)[:, None]
        last = torch.where(is_trigger, place, 0).cummax(1).values
        before = torch.cat((torch.zeros_like(last[:, :1]), last[:, :-1]), 1)
        attended = (before * is_trigger).sum(-1)
        return {
            "trigger": torch.where(is_trigger.any(-1), is_trigger.int().argmax(-1), -1),
            "occurrence": (count * is_trigger).sum(-1),
            "attended": torch.where(attended > 0, attended, -1),
        }

    # ---- exact predictors and counterfactuals

    def reference(self, batch: Batch, name: str) -> Float[Tensor, "batch pos d_vocab"]:
        """An exact predictor of the next token, in float64; NaN at positions that are not scored.

        - `unigram`: `long_run`, whatever stands before.
        - `global_bigram`: the row of the current token in the table of that name.
        - `in_context`: the best prediction of one who knows the generator (outputs as in the split `all`) and sees the
          tokens so far. Random triggers are hidden from it: it weighs what followed each token earlier
          (`ideal_learner`). NaN where no triggers agree with the earlier tokens.
        """
        one_of("reference", name, self.references)
        device = str(batch.inputs.device)
        if name == "in_context":
            result = predict(batch.inputs, self.known(device))
        elif name == "global_bigram":
            result = self.global_bigram(device)[batch.inputs]
        else:
            result = self.long_run(device).expand(*batch.inputs.shape, -1)
        return torch.where(batch.scored[..., None], result, math.nan)

    def allowed_outputs(self, batch: Batch) -> Bool[Tensor, "batch trigger token"]:
        """True for tokens that may become the output of each trigger in a minimal pair."""
        return self.known(str(batch.inputs.device)).outputs[batch.known["triggers"]] > 0

    def corrupt(self, batch: Batch, *, kind: str, generator: torch.Generator) -> Batch:
        """Minimal pairs; "the answer" is the last one of the exchanged trigger that the context gives.

        - `exchange_output`: one trigger of the sequence gets another output that the task allows wherever the old one
          followed it; noise tokens and everything else stay (`output_exchange`). The answer changes.

        Raises:
            InputError: Another kind, or a sequence in which no trigger's answer can change (see `exchangeable`).
        """
        one_of("kind", kind, self.corruptions)
        known, allowed = self.known(str(batch.inputs.device)), self.allowed_outputs(batch)
        tokens, outputs = exchange(
            batch, allowed=allowed, chain=known.chain, generator=generator, noise_token=known.noise_token
        )
        return self.batch(tokens, batch.known["triggers"], outputs)

    def exchangeable(self, batch: Batch) -> Bool[Tensor, " batch"]:
        """Sequences in which the answer of some trigger changes with its output; nearly all."""
        return changes(batch, noise_token=self.known(str(batch.inputs.device)).noise_token).any(1)

    def pair_report(self, clean: Batch, corrupted: Batch) -> dict[str, float]:
        """Measures of the quality of the pairs of `exchange_output`: shares of pairs, and of tokens.

        `answer_changed`; `impossible`: the corrupted sequence has a transition that the chain never makes;
        `tokens_changed`: how many tokens differ.
        """
        known = self.known(str(clean.inputs.device))
        return report(clean, corrupted, chain=known.chain, noise_token=known.noise_token)


@lru_cache
def _known(task: TriggerTask, device: str) -> HiddenTriggers:
    """The ideal learner's knowledge without noise; a noise token is never an output or a trigger."""
    outputs = task.output_probabilities("all")
    n_more = task.d_vocab - len(outputs)
    weights = torch.nn.functional.pad(task.unigram, (0, n_more)).to(device)
    return HiddenTriggers(
        chain=task.chain.to(device),
        outputs=torch.nn.functional.pad(outputs, (0, n_more, 0, n_more)).to(device),
        triggers=Draws(weights, task.n_triggers) if task.triggers == "random" else task.fixed_triggers,
    )


@lru_cache
def _alias_table(task: TriggerTask, device: str) -> AliasTable:
    """The chain in a form to draw from."""
    return alias_table(task.chain).to(device)


@lru_cache
def _outputs(task: TriggerTask, split: str, device: str) -> Float[Tensor, "trigger token"]:
    return task.output_probabilities(split).to(device)


def by_frequency(unigram: Float[Tensor, " token"], first_rank: int, n_triggers: int) -> tuple[int, ...]:
    """The `n_triggers` most frequent tokens from rank `first_rank` on; of equals the lower token comes first."""
    order = unigram.argsort(descending=True, stable=True).tolist()
    return tuple(order[first_rank : first_rank + n_triggers])


def prescribed(
    triggers: Int[Tensor, "batch trigger"], outputs: Int[Tensor, "batch trigger"], n_tokens: int
) -> Int[Tensor, "batch token"]:
    """The successor of every token that is a trigger; -1: it is none."""
    return triggers.new_full((len(triggers), n_tokens), -1).scatter(1, triggers, outputs)


def first_outputs(
    inputs: Int[Tensor, "batch pos"], triggers: Int[Tensor, "batch trigger"], noise_token: int = -1
) -> Int[Tensor, "batch trigger"]:
    """The first token other than noise after every trigger; -1: there is none."""
    follows = (inputs[:, None, :-1] == triggers[..., None]) & (inputs[:, None, 1:] != noise_token)
    after = inputs[:, None, 1:].expand_as(follows)
    first = follows & (follows.cumsum(-1) == 1)
    return torch.where(first, after, -1).amax(-1) if inputs.shape[1] > 1 else torch.full_like(triggers, -1)
