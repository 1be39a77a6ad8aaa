"""Exemplar, label, exemplar, label, query: the answer is the label that the query's class has in this sequence.

Every sequence shows two classes, each with a label, and then one of the two classes again. Labels are drawn anew for
every sequence, so that no class has a label of its own. A *labelling* is two classes and the label of each; the split
is drawn once a replicate (`split_seed`): a share of all labellings trains, the others are the split `test`. Only labels
can be predicted, and only at the query.

System S13 (Singh et al. 2024, "What needs to go right for an induction head?", arXiv 2404.07129). Exemplars there are
fixed image features, one a class, put through a learned linear map. Here the fixed vectors are orthonormal, one a
class: a learned linear map of those is an embedding of tokens. Normal vectors of many dimensions are nearly orthogonal
too, so that a random map takes both to independent normal vectors of the residual stream. What is left out is that
images of two classes can be alike.
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
from mnemoscope.core import POSITION_NAMES, IdealPart, in_range, one_of
from mnemoscope.systems.induction_formation.ideal_parts import LABELS, QUERY, perfect_parts

SPLITS = ("train", "test")
POSITIONS = ("exemplar1", "label1", "exemplar2", "label2", "query")


@dataclass(frozen=True, kw_only=True)
class FewShot(BaseTask):
    """Name the label that the query's class has in this sequence."""

    name: ClassVar[str] = "few-shot"
    references: ClassVar[tuple[str, ...]] = ("uniform", "shown", "answer")
    corruptions: ClassVar[tuple[str, ...]] = (
        "swap_labels",
        "swap_exemplars",
        "other_query",
        "swap_pairs",
        "other_class",
    )

    n_classes: int = 50
    """Classes, one fixed exemplar each."""
    n_labels: int = 5
    """Labels; the two of a sequence differ."""
    train_share: float = 0.8
    """Share of the labellings that train."""
    split_seed: int | None = None
    """Seed of the split; none: the seed of the run."""

    def __post_init__(self) -> None:
        in_range("task.n_classes", self.n_classes, 3, 1000)
        in_range("task.n_labels", self.n_labels, 2, 100)
        in_range("task.n_train", self.n_train, 1, self.n_labellings - 1)

    @property
    def n_labellings(self) -> int:
        """Pairs of classes, times ordered pairs of labels."""
        return math.comb(self.n_classes, 2) * self.n_labels * (self.n_labels - 1)

    @property
    def n_train(self) -> int:
        """Labellings that train."""
        return round(self.train_share * self.n_labellings)

    @property
    def d_vocab(self) -> int:
        """The labels, then the classes."""
        return self.n_labels + self.n_classes

    @property
    def d_vocab_out(self) -> int:
        """Tokens that can be predicted: the labels."""
        return self.n_labels

    @property
    def answers(self) -> range:
        """All labels."""
        return range(self.n_labels)

    @property
    def n_ctx(self) -> int:
        """Two pairs and the query."""
        return len(POSITIONS)

    def symbol(self, token: int) -> str:
        """A label, such as y1, or a class, such as x1."""
        return f"y{token + 1}" if token < self.n_labels else f"x{token - self.n_labels + 1}"

    @property
    def symbols(self) -> list[str]:
        """The names of all tokens."""
        return [self.symbol(token) for token in range(self.d_vocab)]

    # ---- generation

    def trained(self) -> Bool[Tensor, " labelling"]:
        """True for the labellings that train, by number; an `InputError` where no split is chosen yet."""
        if self.split_seed is None:
            raise InputError("task.split_seed is not set: choose one, or take task.for_seed(seed)")
        return _trained(self.n_labellings, self.n_train, self.split_seed)

    def batch(
        self,
        classes: Int[Tensor, "batch pair"],
        labels: Int[Tensor, "batch pair"],
        which: Int[Tensor, " batch"],
    ) -> Batch:
        """The sequences of these classes and labels, counted from 0, whose query is of the class number `which`."""
        rows = torch.arange(len(which), device=which.device)
        inputs = torch.empty(len(which), self.n_ctx, dtype=torch.long, device=which.device)
        inputs[:, 0:4:2], inputs[:, 1:4:2] = classes + self.n_labels, labels
        inputs[:, QUERY] = classes[rows, which] + self.n_labels
        targets, scored = torch.zeros_like(inputs), torch.zeros_like(inputs, dtype=torch.bool)
        targets[:, QUERY], scored[:, QUERY] = labels[rows, which], True
        return Batch(inputs=inputs, targets=targets, scored=scored, derive=self.latents, symbol=self.symbol)

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` sequences of a split: a labelling, the order of its two pairs and which of the two is asked for."""
        one_of("split", split, SPLITS)
        device = generator.device
        there = (self.trained() == (split == "train")).nonzero()[:, 0].to(device)
        drawn = there[torch.randint(len(there), (n,), generator=generator, device=device)]
        classes, labels = self.labelling(drawn)
        coins = torch.randint(2, (2, n), generator=generator, device=device)
        turned = coins[0, :, None] == 1
        return self.batch(
            torch.where(turned, classes.flip(1), classes), torch.where(turned, labels.flip(1), labels), coins[1]
        )

    def labelling(self, number: Int[Tensor, " batch"]) -> tuple[Int[Tensor, "batch pair"], Int[Tensor, "batch pair"]]:
        """Classes, the lower one first, and labels of the labellings of these numbers."""
        n_orders = self.n_labels * (self.n_labels - 1)
        pairs = torch.combinations(torch.arange(self.n_classes, device=number.device))
        order = number % n_orders
        first, other = order // (self.n_labels - 1), order % (self.n_labels - 1)
        return pairs[number // n_orders], torch.stack((first, other + (other >= first)), 1)

    def labelling_number(self, batch: Batch) -> Int[Tensor, " batch"]:
        """The number of each sequence's labelling, whatever the order of its pairs."""
        classes, labels = batch.inputs[:, 0:4:2] - self.n_labels, batch.inputs[:, 1:4:2]
        turned = classes[:, :1] > classes[:, 1:]
        (low, high), (first, second) = (torch.where(turned, each.flip(1), each).unbind(1) for each in (classes, labels))
        pair = low * (2 * self.n_classes - low - 1) // 2 + high - low - 1
        return (pair * self.n_labels + first) * (self.n_labels - 1) + second - (second > first).long()

    def latents(self, batch: Batch) -> dict[str, Tensor]:
        """Facts about each sequence.

        `class_1`, `label_1`, `class_2` and `label_2`, counted from 0; `which` of the two pairs the query asks for, 0 or
        1; `exemplar_pos` and `label_pos`, the positions of that pair; `other_label`, the label that is not asked for.
        """
        tokens = batch.inputs.long()
        which = (tokens[:, QUERY] == tokens[:, 2]).long()
        return {
            "class_1": tokens[:, 0] - self.n_labels,
            "label_1": tokens[:, 1],
            "class_2": tokens[:, 2] - self.n_labels,
            "label_2": tokens[:, 3],
            "which": which,
            "exemplar_pos": 2 * which,
            "label_pos": 2 * which + 1,
            "other_label": tokens.gather(1, 3 - 2 * which[:, None])[:, 0],
        }

    # ---- exact predictors

    def reference(self, batch: Batch, name: str) -> Float[Tensor, "batch pos d_vocab"]:
        """Probabilities, float64; NaN at positions that are not scored.

        `uniform`: all labels alike, a loss of the log of their number. `shown`: the two labels of the sequence alike, a
        loss of log 2. `answer`: the right label, which is the Bayes answer: the sequence says it for sure.
        """
        one_of("reference", name, self.references)
        tokens, one_hot = batch.inputs.long(), torch.nn.functional.one_hot
        guess = torch.full((len(batch), self.n_labels), 1 / self.n_labels, dtype=torch.double, device=tokens.device)
        if name == "shown":
            guess = one_hot(tokens[:, LABELS], self.n_labels).double().mean(1)
        elif name == "answer":
            guess = one_hot(tokens.gather(1, batch.latents["label_pos"][:, None])[:, 0], self.n_labels).double()
        return guess[:, None].expand(-1, self.n_ctx, -1).masked_fill(~batch.scored[..., None], math.nan)

    def ideal_parts(self) -> dict[str, IdealPart]:
        """The parts of the circuit at their ideal form, by name (`ideal_parts`)."""
        return perfect_parts(self.n_labels)

    # ---- counterfactuals

    def corrupt(self, batch: Batch, *, kind: str, generator: torch.Generator) -> Batch:
        """Minimal pairs, of either split.

        The answer changes with `swap_labels` (the two labels change places), `swap_exemplars` (the two exemplars do)
        and `other_query` (the other of the two classes is asked for). It stays with `swap_pairs` (the pairs change
        places) and `other_class` (the exemplar that is asked for and the query are of another class, drawn at random).
        """
        one_of("kind", kind, self.corruptions)
        known = batch.latents
        classes = torch.stack((known["class_1"], known["class_2"]), 1)
        labels, which = torch.stack((known["label_1"], known["label_2"]), 1), known["which"]
        if kind in ("swap_exemplars", "swap_pairs"):
            classes, which = classes.flip(1), 1 - which
        if kind in ("swap_labels", "swap_pairs"):
            labels = labels.flip(1)
        if kind == "other_query":
            which = 1 - which
        elif kind == "other_class":
            draws = torch.rand(
                len(which), self.n_classes, generator=generator, device=generator.device, dtype=torch.float32
            )
            free = draws.to(classes.device).scatter(1, classes, -1.0)
            classes = classes.scatter(1, which[:, None], free.argmax(1, keepdim=True))
        return replace(self.batch(classes, labels, which), weights=batch.weights, scored=batch.scored)

    def pair_report(self, clean: Batch, corrupted: Batch) -> dict[str, float]:
        """`answer_changed` and `in_training`: shares of pairs with another answer, and of a labelling that trains."""
        there = self.trained().to(corrupted.inputs.device)[self.labelling_number(corrupted)]
        changed = clean.targets[:, QUERY] != corrupted.targets[:, QUERY]
        return {"answer_changed": float(changed.double().mean()), "in_training": float(there.double().mean())}


@lru_cache(maxsize=8)
def _trained(n: int, n_train: int, seed: int) -> Bool[Tensor, " labelling"]:
    """Draw the split; it is the same at every call, so that it is kept."""
    return torch.randperm(n, generator=stream(seed, "split")) < n_train


def position_names(task: FewShot) -> list[str]:
    """The names exemplar1, label1, exemplar2, label2 and query."""
    return list(POSITIONS)


TASKS.add(FewShot.name, FewShot)
POSITION_NAMES.add(FewShot.name, position_names)
