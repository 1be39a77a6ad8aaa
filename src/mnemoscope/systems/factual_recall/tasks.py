"""Factual recall: answer with the fact that belongs to a subject and a relation, both hidden among noise.

There are S subjects, R relations and D answers to each relation. The fact a(s, r) is drawn once a replicate, uniformly
among the D answers of its relation (`facts` random), or follows the number of the subject: answer floor(j D / S) of the
relation for subject j (ordered). A sequence of T tokens ends with a query token; the subject and the relation stand at
two different places before it, drawn uniformly, and everywhere else noise tokens, drawn uniformly too. The fact is the
answer at the query. Only answers can be predicted: they are the first D R tokens of the vocabulary, then come subjects,
relations, noise and the query token.

System S5 (Nichani, Lee & Bietti 2025, "Understanding factual recall in transformers via associative memories").
Subjects and relations are drawn uniformly, or by a power law over their numbers, p(j) ∝ (j + 1)^-exponent.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope import TASKS, BaseTask, Batch, InputError, generator
from mnemoscope.core import in_range, one_of

SPLITS = ("train", "test")


@dataclass(frozen=True, kw_only=True)
class FactualRecall(BaseTask):
    """Facts a(s, r) of S subjects and R relations."""

    name: ClassVar[str] = "factual-recall"
    references: ClassVar[tuple[str, ...]] = ("uniform", "relation_uniform", "relation", "subject", "fact")
    corruptions: ClassVar[tuple[str, ...]] = ("other_subject", "other_relation", "other_noise")
    wordings: ClassVar[tuple[str, ...]] = ("other_noise",)
    clusters: ClassVar[str] = "subject"

    n_subjects: int = 32
    """S."""
    n_relations: int = 32
    """R."""
    n_answers: int = 8
    """D, answers to each relation."""
    n_noise: int = 64
    """Noise tokens."""
    length: int = 32
    """T, with the query."""
    facts: Literal["random", "ordered"] = "random"
    """How a fact follows from subject and relation."""
    exponent: float = 0.0
    """Of the power law that subjects and relations are drawn by; 0: uniformly."""
    facts_seed: int | None = None
    """Seed of the table of facts; none: the seed of the run."""

    def __post_init__(self) -> None:
        for name in ("n_subjects", "n_relations", "n_answers", "n_noise"):
            in_range(f"task.{name}", getattr(self, name), 2, math.inf)
        in_range("task.length", self.length, 4, math.inf)
        in_range("task.exponent", self.exponent, 0, math.inf)
        one_of("task.facts", self.facts, ("random", "ordered"))

    @property
    def d_vocab_out(self) -> int:
        """D R, tokens that can be predicted: the answers."""
        return self.n_answers * self.n_relations

    @property
    def first(self) -> dict[str, int]:
        """The first token of every kind."""
        sizes = {"subject": self.n_subjects, "relation": self.n_relations, "noise": self.n_noise, "query": 1}
        starts, start = {"answer": 0}, self.d_vocab_out
        for kind, size in sizes.items():
            starts[kind], start = start, start + size
        return starts

    @property
    def d_vocab(self) -> int:
        """Answers, subjects, relations, noise and the query token."""
        return self.first["query"] + 1

    @property
    def answers(self) -> range:
        """The answers to all relations."""
        return range(self.d_vocab_out)

    @property
    def n_ctx(self) -> int:
        """T."""
        return self.length

    def for_seed(self, seed: int) -> "FactualRecall":
        """The same task with the facts of the replicate `seed`, unless they are fixed or ordered."""
        fixed = self.facts_seed is not None or self.facts == "ordered"
        return self if fixed else replace(self, facts_seed=seed)

    def table(self) -> Int[Tensor, "subject relation"]:
        """The token of every fact; an `InputError` where facts are random and none are chosen yet."""
        if self.facts == "ordered":
            own = torch.arange(self.n_subjects)[:, None] * self.n_answers // self.n_subjects
        elif self.facts_seed is None:
            raise InputError("task.facts_seed is not set: choose one, or take task.for_seed(seed)")
        else:
            draws = generator(self.facts_seed, "facts")
            own = torch.randint(self.n_answers, (self.n_subjects, self.n_relations), generator=draws)
        return own + self.n_answers * torch.arange(self.n_relations)

    def _shares(self, n: int, device: torch.device | str) -> Float[Tensor, " number"]:
        """Probability of each of n subjects, or relations."""
        weights = (torch.arange(n, device=device, dtype=torch.double) + 1) ** -self.exponent
        return weights / weights.sum()

    # ---- generation

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` sequences; both splits are the same distribution: facts cannot be held out."""
        one_of("split", split, SPLITS)
        device = generator.device

        def draw(below: int) -> Int[Tensor, " batch"]:
            return self._shares(below, device).multinomial(n, replacement=True, generator=generator)

        subject, relation = draw(self.n_subjects), draw(self.n_relations)
        places = torch.rand(n, self.length - 1, generator=generator, device=device, dtype=torch.float32).argsort(1)[
            :, :2
        ]
        return self.batch(subject, relation, places, self._noise(n, generator))

    def every_fact(self, n: int, *, generator: torch.Generator) -> Batch:
        """`n` sequences of every fact, places and noise drawn anew: all facts once, subject by subject, then again."""
        device = generator.device
        facts = torch.cartesian_prod(
            torch.arange(n, device=device),
            torch.arange(self.n_subjects, device=device),
            torch.arange(self.n_relations, device=device),
        )
        places = torch.rand(
            len(facts), self.length - 1, generator=generator, device=device, dtype=torch.float32
        ).argsort(1)[:, :2]
        return self.batch(facts[:, 1], facts[:, 2], places, self._noise(len(facts), generator))

    def _noise(self, n: int, generator: torch.Generator) -> Int[Tensor, "batch pos"]:
        size = (n, self.length)
        return self.first["noise"] + torch.randint(self.n_noise, size, generator=generator, device=generator.device)

    def batch(
        self,
        subject: Int[Tensor, " batch"],
        relation: Int[Tensor, " batch"],
        places: Int[Tensor, "batch 2"],
        noise: Int[Tensor, "batch pos"],
    ) -> Batch:
        """The sequences of these subjects and relations, numbered from 0, at these places; elsewhere stands `noise`."""
        words = torch.stack((self.first["subject"] + subject, self.first["relation"] + relation), 1)
        inputs = noise.scatter(1, places, words)
        inputs[:, -1] = self.first["query"]
        targets = torch.zeros_like(inputs)
        targets[:, -1] = self.table().to(inputs.device)[subject, relation]
        scored = (torch.arange(self.length, device=inputs.device) == self.length - 1).expand(len(inputs), -1)
        return Batch(inputs=inputs, targets=targets, scored=scored, derive=self.latents)

    def latents(self, batch: Batch) -> dict[str, Tensor]:
        """Facts about each sequence that follow from its tokens.

        `subject` and `relation`, by number; `subject_pos` and `relation_pos`, where they stand.
        """
        result = {}
        for kind, size in (("subject", self.n_subjects), ("relation", self.n_relations)):
            number = batch.inputs - self.first[kind]
            place = ((number >= 0) & (number < size)).int().argmax(1)
            result |= {kind: number.gather(1, place[:, None])[:, 0], f"{kind}_pos": place}
        return result

    # ---- skills, loss, exact predictors

    def skills(self, batch: Batch) -> dict[str, Bool[Tensor, "batch pos"]]:
        """`recall`: the fact, at the query."""
        return {"recall": batch.scored}

    def reference(self, batch: Batch, name: str) -> Float[Tensor, "batch pos d_vocab_out"]:
        """Probabilities of all answers, float64; NaN at positions that are not scored.

        `uniform`: all answers alike, loss ln(D R). `relation_uniform`: those of the relation alone, ln D. `relation`:
        as often as they are right for this relation, over subjects, p(a | r). `subject`: as often as they are right for
        this subject, over relations, p(a | s). `fact`: the fact.
        """
        one_of("reference", name, self.references)
        latents = self.latents(batch)
        subject, relation = latents["subject"], latents["relation"]
        right = torch.nn.functional.one_hot(self.table(), self.d_vocab_out).double().to(batch.inputs.device)
        by_relation = torch.einsum("s,sra->ra", self._shares(self.n_subjects, right.device), right)
        of_relation = torch.arange(self.d_vocab_out, device=right.device) // self.n_answers == relation[:, None]
        rows = {
            "uniform": lambda: torch.full((len(batch), self.d_vocab_out), 1 / self.d_vocab_out, dtype=torch.double),
            "relation_uniform": lambda: of_relation.double() / self.n_answers,
            "relation": lambda: by_relation[relation],
            "subject": lambda: torch.einsum("r,sra->sa", self._shares(self.n_relations, right.device), right)[subject],
            "fact": lambda: right[subject, relation],
        }
        result = right.new_full((*batch.inputs.shape, self.d_vocab_out), math.nan)
        result[:, -1] = rows[name]().to(right)
        return result.masked_fill(~batch.scored[..., None], math.nan)

    # ---- counterfactuals

    def corrupt(self, batch: Batch, *, kind: str, generator: torch.Generator) -> Batch:
        """Minimal pairs.

        `other_subject`: the subject is another one, whose fact differs; an `InputError` where all subjects have the
        same fact of some relation. `other_relation`: the relation is another one, whose answers are all different. In
        both the answer changes. `other_noise`: all noise is drawn anew; the answer stays.
        """
        one_of("kind", kind, self.corruptions)
        latents, device = batch.latents, batch.inputs.device
        subject, relation = latents["subject"], latents["relation"]
        places = torch.stack((latents["subject_pos"], latents["relation_pos"]), 1)
        noise = batch.inputs
        if kind == "other_noise":
            fresh = self._noise(len(batch), generator).to(device)
            step = 1 + (fresh - self.first["noise"]) % (self.n_noise - 1)  # to another one everywhere
            noise = self.first["noise"] + (noise - self.first["noise"] + step) % self.n_noise
        else:
            n = self.n_subjects if kind == "other_subject" else self.n_relations
            draws = torch.rand(len(batch), n, generator=generator, device=generator.device, dtype=torch.float32).to(
                device
            )
            facts = self.table().to(device)
            others = facts.T[relation] if kind == "other_subject" else facts[subject]
            same = others == facts[subject, relation][:, None]
            if same.all(1).any():
                raise InputError("other_subject needs relations whose facts differ; draw other facts, or more subjects")
            chosen = draws.masked_fill(same, -1).argmax(1)
            subject, relation = (chosen, relation) if kind == "other_subject" else (subject, chosen)
        return replace(self.batch(subject, relation, places, noise), weights=batch.weights, scored=batch.scored)

    def pair_report(self, clean: Batch, corrupted: Batch) -> dict[str, float]:
        """`answer_changed`: the share of the pairs with different facts."""
        return {"answer_changed": float((clean.targets != corrupted.targets).any(1).double().mean())}


TASKS.add(FactualRecall.name, FactualRecall)
