"""Permutation lookup: read a fresh permutation from context, pair by pair, and answer queries about it.

A sequence `x1 y1 ... xV yV` shows one permutation of the values 1..V, y = mapping(x), in a random order of x. With
probability `repeat_ratio` the last x is a copy of an earlier one. Two skills give the last answer: *elimination*
(every y but one is used up) and *recall* (this x stood there before, with its y). On a sequence with a repeat they
disagree; those sequences are the conflict set.

Inputs are all tokens but the last, targets all but the first; scored are the positions of x, where y is the answer.
Token 0 is never used. Mappings are split once into training and test mappings that never overlap. Systems S1 and S2,
"tiny-recall".
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope import TASKS, BaseTask, Batch, InputError, Task
from mnemoscope.core import POSITION_NAMES, in_range, one_of
from mnemoscope.systems.tiny_recall.permutations import (
    all_permutations,
    exchange,
    posterior,
    read_from_context,
    split_permutations,
)

MAX_ENUMERATED = 6


@dataclass(frozen=True, kw_only=True)
class PermutationLookup(BaseTask):
    """Read a fresh permutation from context, pair by pair, and answer queries about it."""

    name: ClassVar[str] = "permutation-lookup"
    slot_size: ClassVar[int] = 2
    references: ClassVar[tuple[str, ...]] = ("bayes", "bayes_train", "elimination", "recall")
    corruptions: ClassVar[tuple[str, ...]] = (
        "exchange_answer",
        "exchange_distractor",
        "move_repeat",
        "toggle_repeat",
        "permute_pairs",
    )
    wordings: ClassVar[tuple[str, ...]] = ("permute_pairs",)

    n_values: int = 5
    """V, the number of values; 3 to 8."""
    train_fraction: float = 0.8
    """Share of the V! mappings that training may see."""
    repeat_ratio: float = 0.0
    """Probability that the last x repeats an earlier one."""
    copied_slots: tuple[int, ...] | None = None
    """Slots (from 1) whose x may be repeated; none: every slot but the last."""
    shuffle_x: bool = True
    """False: x always comes in the order 1..V (except a repeat)."""
    split_seed: int | None = None
    """Seed of the split into training and test mappings; none: the seed of the run."""

    def __post_init__(self) -> None:
        in_range("task.n_values", self.n_values, 3, 8)
        in_range("task.repeat_ratio", self.repeat_ratio, 0, 1)
        n_train = round(self.train_fraction * math.factorial(self.n_values))
        if not 1 <= n_train < math.factorial(self.n_values):
            raise InputError(
                f"task.train_fraction must leave at least one training and one test mapping; got {self.train_fraction}"
            )
        for slot in self.slots_copied:
            in_range("task.copied_slots", slot, 1, self.n_values - 1)
        if len(set(self.slots_copied)) < len(self.slots_copied):
            raise InputError(f"task.copied_slots must name every slot once; got {self.copied_slots}")
        if not self.slots_copied:
            raise InputError("task.copied_slots must name at least one slot; for no repeats set task.repeat_ratio to 0")

    @property
    def d_vocab(self) -> int:
        """V + 1: token 0 exists and is never used."""
        return self.n_values + 1

    @property
    def answers(self) -> range:
        """The values 1..V."""
        return range(1, self.n_values + 1)

    @property
    def n_ctx(self) -> int:
        """2V - 1: all tokens but the last y."""
        return 2 * self.n_values - 1

    @property
    def slots_copied(self) -> tuple[int, ...]:
        """Slots (from 1) whose x may stand again in the last slot."""
        return tuple(range(1, self.n_values)) if self.copied_slots is None else self.copied_slots

    def mappings(self, split: str) -> Int[Tensor, "mapping value"]:
        """The mappings of `train`, `test` or `all`; column i holds the image of i + 1.

        Raises:
            InputError: Another split is asked for, or none is chosen yet (`split_seed` is none).
        """
        one_of("split", split, ("train", "test", "all"))
        if split == "all":
            return all_permutations(self.n_values)
        if self.split_seed is None:
            raise InputError("task.split_seed is not set: choose one, or take task.for_seed(seed)")
        return split_permutations(self.n_values, self.train_fraction, self.split_seed)[split]

    # ---- generation

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` independent sequences over the mappings of `split`."""
        device, slots = generator.device, self.n_values
        table = self.mappings(split).to(device)
        mapping = table[torch.randint(len(table), (n,), generator=generator, device=device)]
        if self.shuffle_x:
            orders = all_permutations(slots).to(device)
            x = orders[torch.randint(len(orders), (n,), generator=generator, device=device)]
        else:
            x = torch.arange(1, slots + 1, device=device).repeat(n, 1)
        if self.repeat_ratio:
            copied = torch.tensor(self.slots_copied, device=device) - 1
            source = copied[torch.randint(len(copied), (n,), generator=generator, device=device)]
            repeated = torch.rand(n, generator=generator, device=device, dtype=torch.float32) < self.repeat_ratio
            x[:, -1] = torch.where(repeated, x.gather(1, source[:, None])[:, 0], x[:, -1])
        return self.batch(x, mapping)

    def batch(self, x: Int[Tensor, "batch slot"], mapping: Int[Tensor, "batch value"]) -> Batch:
        """The sequences that show `mapping` in the order `x`."""
        tokens = torch.stack((x, mapping.gather(1, x - 1)), -1).flatten(1)
        return self.from_tokens(tokens[:, :-1], tokens[:, 1:])

    def from_tokens(self, inputs: Int[Tensor, "batch pos"], targets: Int[Tensor, "batch pos"]) -> Batch:
        """A batch of given sequences; latents and references follow from the tokens."""
        scored = (torch.arange(inputs.shape[1], device=inputs.device) % 2 == 0).expand(inputs.shape)
        return Batch(inputs=inputs, targets=targets, scored=scored, derive=self._latents)

    def parse(self, text: str) -> Batch:
        """One sequence `x1 y1 x2 ...` as typed, ending with an x (answer unknown: target 0) or with its y.

        Raises:
            InputError: A token is no value, the length is wrong, or no permutation agrees with the pairs.
        """
        words = text.replace(",", " ").split()
        allowed = [str(value) for value in range(1, self.n_values + 1)]
        for word in words:
            one_of("a token", word, allowed)
        in_range("the number of tokens", len(words), 1, 2 * self.n_values)
        tokens = torch.tensor([int(word) for word in words])
        xs, ys = tokens[0::2].tolist(), tokens[1::2].tolist()
        pairs = dict(zip(xs, ys, strict=False))
        if any(pairs[x] != y for x, y in zip(xs, ys, strict=False)) or len(set(pairs.values())) != len(pairs):
            raise InputError(f"the pairs of {text!r} contradict each other: every x has one y, and no two x share a y")
        full = torch.cat((tokens, torch.zeros(len(words) % 2, dtype=tokens.dtype)))[None]
        return self.from_tokens(full[:, :-1], full[:, 1:])

    def enumerate(self, *, split: str) -> Batch:
        """Every sequence over the mappings of `split` once, those with and those without a repeat; V up to 6.

        The weights are the sequences' probabilities: they add up to one, and repeats weigh nothing if repeat_ratio
        is 0.
        """
        if self.n_values > MAX_ENUMERATED:
            raise InputError(
                f"enumeration needs task.n_values <= {MAX_ENUMERATED}; got {self.n_values}; draw samples instead"
            )
        table = self.mappings(split)
        orders = all_permutations(self.n_values) if self.shuffle_x else torch.arange(1, self.n_values + 1)[None]
        with_repeat = []
        for slot in self.slots_copied:
            repeated = orders.clone()
            repeated[:, -1] = orders[:, slot - 1]
            with_repeat.append(repeated)
        repeats = torch.cat(with_repeat)
        x = torch.cat((orders, repeats))
        share = torch.cat(
            (
                torch.full((len(orders),), (1 - self.repeat_ratio) / len(orders)),
                torch.full((len(repeats),), self.repeat_ratio / len(repeats)),
            )
        )
        batch = self.batch(x.repeat(len(table), 1), table.repeat_interleave(len(x), 0))
        return replace(batch, weights=(share / len(table)).repeat(len(table)))

    def monitor(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` sequences without a repeat, then `n` with one, weighted by repeat_ratio."""
        parts = [replace(self, repeat_ratio=r).sample(n, split=split, generator=generator) for r in (0.0, 1.0)]
        weights = torch.tensor([1 - self.repeat_ratio, self.repeat_ratio], device=generator.device) / n
        batch = self.from_tokens(
            torch.cat([part.inputs for part in parts]), torch.cat([part.targets for part in parts])
        )
        return replace(batch, weights=weights.repeat_interleave(n))

    def conflict_set(self, *, split: str) -> Batch:
        """Every sequence of `split` whose last x repeats an earlier one, over all source slots."""
        batch = replace(self, repeat_ratio=1.0, copied_slots=None).enumerate(split=split)
        return batch.select(batch.latents["is_repeat"])

    # ---- latents, subgroups, skills

    def _latents(self, batch: Batch) -> dict[str, Tensor]:
        """The latents of complete sequences; slots count from 1, 0 stands for "none"."""
        x, y = pairs(batch)
        if x.shape[1] != self.n_values:
            raise InputError(f"latents need complete sequences of {self.n_values} pairs; got {x.shape[1]}")
        if (x[:, :-1].sort(1)[0].diff(dim=1) == 0).any():
            raise InputError("latents need sequences in which no x but the last repeats an earlier one")
        same = x[:, :-1] == x[:, -1:]
        is_repeat = same.any(1)
        slot = torch.where(is_repeat, same.int().argmax(1) + 1, 0)
        unused = self.n_values * (self.n_values + 1) // 2 - y[:, :-1].sum(1)
        mapping = torch.zeros_like(x).scatter(1, x[:, :-1] - 1, y[:, :-1])
        mapping = torch.where(mapping == 0, unused[:, None], mapping)
        return {
            "x": x,
            "y": y,
            "mapping": mapping,
            "is_repeat": is_repeat,
            "source_slot": slot,
            "source_pos": torch.where(is_repeat, 2 * (slot - 1), -1),
            "recalled": torch.where(is_repeat, y.gather(1, (slot - 1).clamp(min=0)[:, None])[:, 0], 0),
            "unused": unused,
        }

    def subgroups(self, batch: Batch) -> dict[str, Bool[Tensor, " batch"]]:
        """`fresh`: the last x is new. `repeat`: it stood there before."""
        is_repeat = batch.latents["is_repeat"]
        return {"fresh": ~is_repeat, "repeat": is_repeat}

    def skills(self, batch: Batch) -> dict[str, Bool[Tensor, "batch pos"]]:
        """The last answer: `elimination` gives it on fresh sequences, `recall` on repeats."""
        last = torch.zeros_like(batch.scored)
        last[:, -1] = True
        groups = self.subgroups(batch)
        return {"elimination": last & groups["fresh"][:, None], "recall": last & groups["repeat"][:, None]}

    # ---- exact predictors

    def reference(self, batch: Batch, name: str) -> Float[Tensor, "batch pos d_vocab"]:
        """An exact predictor of y at every slot, in float64; NaN at positions that are not scored.

        - `bayes`: uniform over the permutations consistent with the context: the earlier y of an x that was seen,
          else uniform over the values not used yet.
        - `bayes_train`, `bayes_test`: the posterior under a uniform prior over the training (test) mappings, what a
          predictor that knows the split would say; NaN where no mapping of the prior is consistent with the context.
        - `elimination`: uniform over the values not used yet, whatever x is.
        - `recall`: the earlier y of an x that was seen, else uniform over all values.
        """
        one_of("reference", name, (*self.references, "bayes_test"))
        x, y = pairs(batch)
        if name in ("bayes_train", "bayes_test"):
            by_slot = posterior(x, y, self.mappings(name.removeprefix("bayes_")).to(x.device))
        else:
            by_slot = read_from_context(x, y, self.n_values, eliminate=name != "recall", recall=name != "elimination")
        result = by_slot.new_full((*batch.inputs.shape, self.d_vocab), math.nan)
        result[:, ::2] = by_slot
        return result

    # ---- counterfactuals

    def corrupt(self, batch: Batch, *, kind: str, generator: torch.Generator) -> Batch:
        """Minimal pairs of complete sequences; "the answer" is the last target.

        - `exchange_answer`: one y and the value no earlier pair has change places: the y that recall would give on
          a repeat, that of a random slot otherwise. The answer changes.
        - `exchange_distractor`: on a repeat the y of a pair that is not the source and the unused value change
          places, on a fresh sequence the y of two earlier pairs do. The answer stays.
        - `move_repeat`: the last x repeats another slot (repeats only). The answer changes.
        - `toggle_repeat`: a repeat gets the fresh x, a fresh sequence repeats a random slot. The answer changes.
        - `permute_pairs`: the earlier pairs come in another order. The answer stays.

        An `InputError` says so where `move_repeat` is asked for and a sequence has no repeat.
        """
        one_of("kind", kind, self.corruptions)
        latents, n, last = batch.latents, len(batch), self.n_values - 1
        x, mapping, repeat = latents["x"].clone(), latents["mapping"], latents["is_repeat"]
        source = latents["source_slot"] - 1
        scores = torch.rand(n, last, generator=generator, device=generator.device, dtype=torch.float32).to(x.device)
        if kind in ("exchange_distractor", "move_repeat"):
            scores = scores.scatter_add(1, source.clamp(min=0)[:, None], repeat[:, None] * 2.0)
        order = scores.argsort(1)  # a random order of the earlier slots, the source last
        chosen, other = order[:, 0], order[:, 1]
        missing = torch.where(repeat, self.n_values * (self.n_values + 1) // 2 - x[:, :-1].sum(1), x[:, -1])

        def x_at(slot: Tensor) -> Tensor:
            return x.gather(1, slot[:, None])[:, 0]

        if kind == "exchange_answer":
            return self.batch(x, exchange(mapping, x_at(torch.where(repeat, source, chosen)), missing))
        if kind == "exchange_distractor":
            return self.batch(x, exchange(mapping, x_at(chosen), torch.where(repeat, missing, x_at(other))))
        if kind == "move_repeat":
            if not repeat.all():
                raise InputError("move_repeat needs sequences with a repeat; select them by the latent is_repeat")
            x[:, -1] = x_at(chosen)
        elif kind == "toggle_repeat":
            x[:, -1] = torch.where(repeat, missing, x_at(chosen))
        else:
            # a random rotation of the earlier slots, never the identity: every pair moves
            shift = torch.randint(1, last, (n, 1), generator=generator, device=generator.device).to(x.device)
            x[:, :-1] = x[:, :-1].gather(1, (torch.arange(last, device=x.device) + shift) % last)
        return self.batch(x, mapping)

    def pair_report(self, clean: Batch, corrupted: Batch) -> dict[str, float]:
        """Measures of the quality of minimal pairs, as shares of the pairs.

        `answer_changed`; `collisions`: the corrupted sequence is also one of the clean ones; `train_clean` and
        `train_corrupted`: the sequence shows a training mapping.
        """
        code = (self.n_values + 1) ** torch.arange(2 * self.n_values, device=clean.inputs.device)
        place = code[: self.n_values]
        whole = [(torch.cat((b.inputs, b.targets[:, -1:]), 1) * code).sum(1) for b in (clean, corrupted)]
        train = (self.mappings("train").to(place.device) * place).sum(1)
        shows = [torch.isin((b.latents["mapping"] * place).sum(1), train) for b in (clean, corrupted)]
        return {
            "answer_changed": float((clean.targets[:, -1] != corrupted.targets[:, -1]).double().mean()),
            "collisions": float(torch.isin(whole[1], whole[0]).double().mean()),
            "train_clean": float(shows[0].double().mean()),
            "train_corrupted": float(shows[1].double().mean()),
        }


def pairs(batch: Batch) -> tuple[Int[Tensor, "batch slot"], Int[Tensor, "batch slot"]]:
    """The x and the y of every slot of a batch of this task."""
    return batch.inputs[:, ::2], batch.targets[:, ::2]


def lookup_task(task: Task) -> PermutationLookup:
    """The task, if it is the permutation lookup; else an `InputError`."""
    if not isinstance(task, PermutationLookup):
        raise InputError(f"this analysis reads runs of {PermutationLookup.name}; got a run of {task.name}")
    return task


def position_names(task: PermutationLookup) -> list[str]:
    """x1, y1, …: the pairs count from 1; the last y is no input."""
    return [f"{kind}{slot}" for slot in range(1, task.n_values + 1) for kind in "xy"][: task.n_ctx]


TASKS.add(PermutationLookup.name, PermutationLookup)
POSITION_NAMES.add(PermutationLookup.name, position_names)
