"""What a RASP program answers, as a task: BOS, a few tokens, and a class at every place.

The sequences of a program are few, so all of them and their answers are kept in a table, made by `programs`. Used are
those in which another token at one place changes an answer and leaves it defined where it was.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope import TASKS, BaseTask, Batch
from mnemoscope.core import POSITION_NAMES, one_of
from mnemoscope.systems.rasp.programs import BOS, PROGRAMS, Program

SPLITS = ("train", "test")
UNDEFINED = -1
"""The answer where there is none."""


class Table(NamedTuple):
    """All sequences of a program; row by row their answers, and the rows of those with one other token."""

    shown: Int[Tensor, "row place"]
    answers: Int[Tensor, "row place"]
    neighbours: Int[Tensor, "row other"]
    changes: Bool[Tensor, "row other"]
    """True for neighbours that are sequences of the program, and make a minimal pair with the row."""
    used: Int[Tensor, " used"]
    """Rows with such a neighbour."""


@lru_cache
def table(name: str) -> Table:
    """The table of a program."""
    program = PROGRAMS[name]
    n, length = len(program.tokens), program.n_shown
    sequences = list(product(range(n), repeat=length))
    shown = torch.tensor(sequences)
    answers = torch.tensor([_answers(program, sequence) for sequence in sequences])
    powers = n ** torch.arange(length - 1, -1, -1)
    steps = torch.arange(1, n)[:, None, None]
    neighbours = torch.arange(len(shown))[:, None] + ((shown + steps) % n - shown).permute(1, 0, 2).flatten(1) * (
        powers.repeat(n - 1)
    )
    repeats = shown.sort(1)[0].diff(dim=1).eq(0).any(1)
    allowed = ~repeats if program.distinct else torch.ones_like(repeats)
    changes = allowed[:, None] & allowed[neighbours] & _is_pair(answers[:, None], answers[neighbours])
    return Table(shown, answers, neighbours, changes, changes.any(1).nonzero()[:, 0])


def _answers(program: Program, sequence: tuple[int, ...]) -> list[int]:
    given = program.answer([program.tokens[token] for token in sequence])
    return [UNDEFINED if value is None else program.outputs.index(value) for value in given]


def _is_pair(one: Int[Tensor, "*rows place"], other: Int[Tensor, "*rows place"]) -> Bool[Tensor, "*rows"]:
    """True where answers differ, and are defined at the same places."""
    return (one != other).any(-1) & ((one == UNDEFINED) == (other == UNDEFINED)).all(-1)


@dataclass(frozen=True, kw_only=True)
class Rasp(BaseTask):
    """Compute what a RASP program computes."""

    name: ClassVar[str] = "rasp"
    references: ClassVar[tuple[str, ...]] = ("answer", "frequency")
    corruptions: ClassVar[tuple[str, ...]] = ("replace", "redraw")

    program: str = "hist"
    """Name of the program."""

    def __post_init__(self) -> None:
        one_of("task.program", self.program, tuple(PROGRAMS))

    @property
    def definition(self) -> Program:
        """Alphabet, length and answers."""
        return PROGRAMS[self.program]

    @property
    def classes(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Everything that can be answered."""
        return tuple(map(str, self.definition.outputs))

    @property
    def d_vocab(self) -> int:
        """The alphabet and BOS, which comes last."""
        return len(self.definition.tokens) + 1

    @property
    def n_ctx(self) -> int:
        """BOS and the sequence."""
        return self.definition.n_shown + 1

    def symbol(self, token: int) -> str:
        """The name of a token."""
        return str((*self.definition.tokens, BOS)[token])

    # ---- generation

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` sequences drawn alike; both splits are the same distribution."""
        one_of("split", split, SPLITS)
        used = table(self.program).used
        rows = torch.randint(len(used), (n,), generator=generator, device=generator.device)
        return self._batch(used.to(rows.device)[rows])

    def enumerate(self, *, split: str) -> Batch:
        """Every sequence, each with the same probability."""
        one_of("split", split, SPLITS)
        used = table(self.program).used
        return replace(self._batch(used), weights=torch.full((len(used),), 1 / len(used)))

    def _batch(self, rows: Int[Tensor, " batch"]) -> Batch:
        found, device = table(self.program), rows.device
        shown, answers = found.shown.to(device)[rows], found.answers.to(device)[rows]
        padded = torch.nn.functional.pad(answers, (1, 0), value=UNDEFINED)
        return Batch(
            inputs=torch.nn.functional.pad(shown, (1, 0), value=self.d_vocab - 1),
            targets=padded.clamp(min=0),
            scored=padded != UNDEFINED,
            symbol=self.symbol,
            classes=self.classes,
            derive=self.latents,
        )

    def latents(self, batch: Batch) -> dict[str, Tensor]:
        """`row`: the number of the sequence among all of the program, in lexicographic order."""
        n, length = self.d_vocab - 1, self.n_ctx - 1
        powers = n ** torch.arange(length - 1, -1, -1, device=batch.inputs.device)
        return {"row": (batch.inputs[:, 1:] * powers).sum(1)}

    # ---- exact predictors

    def reference(self, batch: Batch, name: str) -> Float[Tensor, "batch pos d_vocab_out"]:
        """Probabilities in float64; NaN at positions that are not scored.

        `answer`: the right answer. `frequency`: how often each class is the answer at this place, whatever is shown.
        """
        one_of("reference", name, self.references)
        one_hot = torch.nn.functional.one_hot
        if name == "answer":
            result = one_hot(batch.targets, len(self.classes)).double()
        else:
            every = self.enumerate(split="test")
            counts = (one_hot(every.targets, len(self.classes)) * every.scored[..., None]).sum(0).double()
            result = (counts / counts.sum(-1, keepdim=True).clamp(min=1)).to(batch.inputs.device)
            result = result.expand(len(batch), -1, -1)
        return result.masked_fill(~batch.scored[..., None], math.nan)

    # ---- counterfactuals

    def corrupt(self, batch: Batch, *, kind: str, generator: torch.Generator) -> Batch:
        """Minimal pairs: an answer changes at some scored position, and answers are defined where they were.

        `replace`: one token is another. `redraw`: another sequence.
        """
        one_of("kind", kind, self.corruptions)
        found, device = table(self.program), batch.inputs.device
        rows = batch.latents["row"].cpu()
        changes, others = found.changes[rows], found.neighbours[rows]
        if kind == "redraw":
            changes = _is_pair(found.answers[rows][:, None], found.answers[found.used])
            others = found.used.expand(len(rows), -1)
        draws = torch.rand(changes.shape, generator=generator, device=generator.device, dtype=torch.float32).cpu()
        chosen = (draws + 1).mul(changes).argmax(1, keepdim=True)
        result = self._batch(others.gather(1, chosen)[:, 0].to(device))
        return replace(result, weights=batch.weights, scored=batch.scored)

    def pair_report(self, clean: Batch, corrupted: Batch) -> dict[str, float]:
        """`answers_changed`: the share of scored positions with another answer."""
        changed = (clean.targets != corrupted.targets)[clean.scored]
        return {"answers_changed": float(changed.double().mean())}


def position_names(task: Rasp) -> list[str]:
    """BOS, then p0, p1, …, counted as RASP counts its indices."""
    return [BOS, *(f"p{i}" for i in range(task.n_ctx - 1))]


TASKS.add(Rasp.name, Rasp)
POSITION_NAMES.add(Rasp.name, position_names)
