"""In-context bigrams: a Markov chain over characters in which some tokens get a successor of the sequence's own.

A sequence has K *trigger* tokens q and one *output* token o for each. From the unigram distribution on it follows the
global bigrams of a text, but a trigger is always followed by its output. At the first occurrence of a trigger its
output cannot be known; from the second on it can be read from the context, which takes an induction head. Everywhere
else the global bigrams are all there is to know.

Inputs are all tokens but the last, targets all but the first. System S3, "birth" (Bietti et al. 2023, "Birth of a
Transformer: A Memory Viewpoint"); the bigrams are those of tiny Shakespeare unless another table is given.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope import TASKS, Batch, InputError
from mnemoscope import generator as stream
from mnemoscope.core import in_range, metrics, one_of
from mnemoscope.systems.in_context_bigrams.bigrams import Bigrams, Counts, bigrams, count_bigrams
from mnemoscope.systems.in_context_bigrams.ideal_learner import HiddenTriggers, predict
from mnemoscope.systems.in_context_bigrams.markov import AliasTable, alias_table, walk
from mnemoscope.systems.in_context_bigrams.output_exchange import changes, exchange, report
from mnemoscope.systems.in_context_bigrams.successive_sampling import Draws
from mnemoscope.systems.in_context_bigrams.triggers import by_frequency, first_outputs, latents, prescribed


@dataclass(frozen=True, kw_only=True)
class InContextBigrams:
    """Global bigrams, and K triggers whose successor differs from sequence to sequence."""

    name: ClassVar[str] = "in-context-bigrams"
    slot_size: ClassVar[int] = 1
    references: ClassVar[tuple[str, ...]] = ("unigram", "global_bigram", "in_context")
    corruptions: ClassVar[tuple[str, ...]] = ("exchange_output",)

    length: int = 256
    """Tokens that the model sees; 3 or more."""
    n_triggers: int = 5
    """K, the number of triggers a sequence."""
    triggers: Literal["random", "fixed"] = "random"
    """random: drawn for every sequence from the unigram distribution, without replacement; fixed: always the same."""
    first_rank: int = 0
    """Where fixed triggers start in the order of frequency; 0: the K most frequent tokens."""
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
        in_range("task.length", self.length, 3, math.inf)
        in_range("task.n_triggers", self.n_triggers, 1, self.d_vocab - 1)
        in_range("task.first_rank", self.first_rank, 0, self.d_vocab - self.n_triggers)
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
    def symbols(self) -> str:
        """What every token is called."""
        return self.bigrams.symbols

    @property
    def d_vocab(self) -> int:
        """Symbols of the text."""
        return len(self.bigrams.symbols)

    @property
    def answers(self) -> range:
        """Every token."""
        return range(self.d_vocab)

    @property
    def n_ctx(self) -> int:
        """The length."""
        return self.length

    @property
    def n_held_out(self) -> int:
        """Tokens that are never outputs in training."""
        return round(self.held_out * self.d_vocab)

    @property
    def fixed_triggers(self) -> tuple[int, ...]:
        """The triggers, where they are fixed, from the most frequent on."""
        return by_frequency(self.bigrams.unigram, self.first_rank, self.n_triggers)

    def with_text(self, text: str) -> dict[str, object]:
        """Fields that make this the task of another text.

        Raises:
            InputError: The text has too few symbols, or too many.
        """
        return {"counts": count_bigrams(text)}

    def for_seed(self, seed: int) -> "InContextBigrams":
        """The same task with the held-out tokens of the replicate `seed`, unless there are none or they are fixed."""
        return self if not self.held_out or self.split_seed is not None else replace(self, split_seed=seed)

    def may_be_output(self, split: str) -> Bool[Tensor, " token"]:
        """Which tokens can be the output of a trigger in a split.

        Raises:
            InputError: Another split is asked for, or tokens are held out and none is chosen yet.
        """
        one_of("split", split, ("train", "test", "all"))
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

    # ---- generation

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` independent sequences whose outputs are those of `split`."""
        device = generator.device
        table, unigram, probabilities = _tables(self, split, str(device))
        if self.triggers == "fixed":
            triggers = torch.tensor(self.fixed_triggers, device=device).expand(n, -1)
        else:
            triggers = torch.multinomial(unigram.expand(n, -1), self.n_triggers, generator=generator)
        outputs = torch.multinomial(probabilities[triggers].flatten(0, 1), 1, generator=generator).view_as(triggers)
        first = torch.multinomial(unigram, n, replacement=True, generator=generator)
        successors = prescribed(triggers, outputs, self.d_vocab)
        tokens = walk(first, table, self.length + 1, prescribed=successors, generator=generator)
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
        batch = Batch(inputs=tokens[:, :-1], targets=tokens[:, 1:], scored=everywhere, known=known, derive=latents)
        return batch if self.loss_on == "all" else replace(batch, scored=batch.latents["occurrence"] > 1)

    def parse(self, text: str) -> Batch:
        """One sequence of symbols as typed (⏎: a newline), all of them inputs.

        What follows the last is not known: its target is 0 and its position is not scored. Fixed triggers
        are known, with what first follows them as their output. Random ones are not: no position counts as one
        (trigger and output -1).

        Raises:
            InputError: A symbol is not in the table, or there are none, or more than `length`.
        """
        inputs = torch.tensor([self.bigrams.encode(text)], dtype=torch.long)
        in_range("the number of symbols", len(text), 1, self.length)
        triggers = torch.tensor([self.fixed_triggers if self.triggers == "fixed" else (-1,) * self.n_triggers])
        batch = self.batch(torch.nn.functional.pad(inputs, (0, 1)), triggers, first_outputs(inputs, triggers))
        return replace(batch, scored=batch.scored & (torch.arange(len(text)) < len(text) - 1))

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

    def subgroups(self, batch: Batch) -> dict[str, Bool[Tensor, " batch"]]:
        """None: there is one kind of sequences."""
        return {}

    def skills(self, batch: Batch) -> dict[str, Bool[Tensor, "batch pos"]]:
        """`in_context`: a trigger that occurred before; `global`: no trigger, where that is scored."""
        occurrence = batch.latents["occurrence"]
        return {"in_context": occurrence > 1, **({"global": occurrence == 0} if self.loss_on == "all" else {})}

    def loss(self, outputs: Float[Tensor, "batch pos d_vocab"], batch: Batch) -> Float[Tensor, ""]:
        """Mean cross-entropy over the scored positions, in nats."""
        losses = metrics.cross_entropy(outputs, batch.targets)
        return (losses * batch.scored).sum() / batch.scored.sum().clamp(min=1)

    # ---- exact predictors

    def reference(self, batch: Batch, name: str) -> Float[Tensor, "batch pos d_vocab"]:
        """An exact predictor of the next token, in float64; NaN at positions that are not scored.

        - `unigram`: how often the symbols occur in the text, whatever stands before.
        - `global_bigram`: what follows the token in the text, as if there were no triggers.
        - `in_context`: the best prediction of one who knows the generator (outputs as in the split `all`) and sees the
          tokens so far. Random triggers are hidden from it: it weighs what followed each token earlier
          (`core.ideal_learner`). NaN where no triggers agree with the earlier tokens.
        """
        one_of("reference", name, self.references)
        known = _generator(self, str(batch.inputs.device))
        if name == "in_context":
            result = predict(batch.inputs, known)
        elif name == "global_bigram":
            result = known.chain[batch.inputs]
        else:
            result = self.bigrams.unigram.to(batch.inputs.device).expand(*batch.inputs.shape, -1)
        return torch.where(batch.scored[..., None], result, math.nan)

    # ---- counterfactuals

    def corrupt(self, batch: Batch, *, kind: str, generator: torch.Generator) -> Batch:
        """Minimal pairs; "the answer" is the last one of the exchanged trigger that the context gives.

        - `exchange_output`: one trigger of the sequence gets another output that the task allows, on the same side of
          the split, wherever the old one followed it; nothing else moves (`core.output_exchange`). The answer changes.

        The pairs are scored where the clean sequences are.

        Raises:
            InputError: Another kind, or a sequence in which no trigger's answer can change (see `exchangeable`).
        """
        one_of("kind", kind, self.corruptions)
        device, triggers, outputs = batch.inputs.device, batch.known["triggers"], batch.known["outputs"]
        known = _generator(self, str(device))
        allowed = known.outputs[triggers] > 0
        if self.held_out and self.split_seed is not None:
            held = self.may_be_output("test").to(device)
            allowed = allowed & (held == held[outputs][..., None])
        tokens, outputs = exchange(batch, allowed=allowed, chain=known.chain, generator=generator)
        return replace(self.batch(tokens, triggers, outputs), scored=batch.scored)

    def exchangeable(self, batch: Batch) -> Bool[Tensor, " batch"]:
        """Sequences in which the answer of some trigger changes with its output; nearly all."""
        return changes(batch).any(1)

    def pair_report(self, clean: Batch, corrupted: Batch) -> dict[str, float]:
        """How good the pairs of `exchange_output` are: shares of pairs, and of tokens.

        `answer_changed`; `impossible`: the corrupted sequence has a transition that the chain never makes;
        `tokens_changed`: how many tokens differ.
        """
        return report(clean, corrupted, chain=_generator(self, str(clean.inputs.device)).chain)


@lru_cache
def _tables(
    task: InContextBigrams, split: str, device: str
) -> tuple[AliasTable, Float[Tensor, " token"], Float[Tensor, "trigger token"]]:
    """The chain in a form to draw from, the unigram distribution, and that of the outputs, on a device."""
    table = alias_table(task.bigrams.transitions).to(device)
    return table, task.bigrams.unigram.to(device), task.output_probabilities(split).to(device)


@lru_cache
def _generator(task: InContextBigrams, device: str) -> HiddenTriggers:
    """What the ideal learner knows of a task."""
    table = task.bigrams
    return HiddenTriggers(
        chain=table.transitions.to(device),
        outputs=task.output_probabilities("all").to(device),
        triggers=Draws(table.unigram.to(device), task.n_triggers) if task.triggers == "random" else task.fixed_triggers,
    )


TASKS.add(InContextBigrams.name, InContextBigrams)
