"""Batches: a row of a batch is what it is alone, with its own writes, whatever the other rows are."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from mnemoscope.core.protocols import reads_vectors
from mnemoscope.hookcheck.law import Family
from mnemoscope.hookcheck.mutants import Faulty, shows, writes_are
from mnemoscope.interventions.comparison import Comparison
from mnemoscope.interventions.subject import TestSubject

FAMILY = Family(name="batches", analyses=("patch", "ablate"))
_N_MANY = 12
_FEW = 4


def _n_rows(subject: TestSubject) -> int:
    """The number of rows; the laws say nothing about one row."""
    if len(subject.tokens) < 2:
        subject.skip("prompts have one row")
    return len(subject.tokens)


def _alone(subject: TestSubject, row: int) -> Tensor:
    """Logits of one row, run alone."""
    return subject.run(subject.tokens[row : row + 1], reads=()).logits


def _first_stream(subject: TestSubject) -> str:
    return subject.point("resid_pre", subject.require("resid_pre")[0])


@FAMILY.law(
    reason="A prompt's effect may not depend on the prompts that it is batched with.",
    mutant=lambda good: Faulty(good, output=lambda logits: logits + 0.01 * logits.mean(0)),
    threads=("nnsight #722",),
)
def each_row_equals_the_row_alone(subject: TestSubject) -> Iterator[Comparison]:
    """The logits of each row of a batch are those of the row alone."""
    for row in range(_n_rows(subject)):
        got = subject.clean.logits[row : row + 1]
        yield Comparison(point="logits", got=got, wanted=_alone(subject, row))


@FAMILY.law(
    reason="Patches take activations of a batch; each row's must be its own.",
    mutant=shows("resid_post", lambda x: x + 0.01 * x.mean(0, keepdim=True)),
)
def activations_of_each_row_are_those_of_the_row_alone(subject: TestSubject) -> Iterator[Comparison]:
    """The activation of each row of a batch is that of the row alone, at every hook point."""
    for row in range(_n_rows(subject)):
        alone = subject.run(subject.tokens[row : row + 1])
        for point in subject.clean.at.keys() & alone.at.keys():
            whole = subject.clean.at[point]
            if len(whole) == len(subject.tokens):  # some points have one row for all
                yield Comparison(point=point, got=whole[row : row + 1], wanted=alone.at[point])


@FAMILY.law(
    reason="Prompts are shuffled and cut into chunks; their order may not show in results.",
    mutant=lambda good: Faulty(good, output=lambda x: x * torch.linspace(1, 1.01, len(x)).to(x)[:, None, None]),
)
def the_order_of_rows_does_not_matter(subject: TestSubject) -> Iterator[Comparison]:
    """A batch whose rows are reversed gives the logits in reverse."""
    _n_rows(subject)
    reverse = subject.run(subject.tokens.flip(0), reads=()).logits
    yield Comparison(point="logits", got=reverse.flip(0), wanted=subject.clean.logits)


def _first_rows_only(logits: Tensor) -> Tensor:
    """Rows after the fourth repeat it."""
    return torch.cat((logits[:_FEW], logits[_FEW - 1 : _FEW].expand(max(0, len(logits) - _FEW), -1, -1)))


@FAMILY.law(
    reason="Sweeps run many cells as rows of one batch.",
    mutant=lambda good: Faulty(good, output=_first_rows_only),
)
def a_large_batch_equals_small_ones(subject: TestSubject) -> Iterator[Comparison]:
    """Twelve rows in one batch give the logits of the same rows in small batches."""
    both = torch.cat((subject.tokens, subject.donors))
    many = both.repeat(-(-_N_MANY // len(both)), *(1,) * (both.ndim - 1))[:_N_MANY]
    parts = [subject.run(part, reads=()).logits for part in many.split(2)]
    yield Comparison(point="logits", got=subject.run(many, reads=()).logits, wanted=torch.cat(parts))


@FAMILY.law(
    reason="In a sweep each row has an edit of its own; a row without one is the baseline.",
    mutant=writes_are("resid_pre", lambda old, new: old + (new - old).mean(0, keepdim=True)),
    threads=("nnsight #722",),
)
def a_row_without_a_write_stays(subject: TestSubject) -> Iterator[Comparison]:
    """A write in the last row of a batch leaves the logits of the other rows as they are."""
    n, point = _n_rows(subject), _first_stream(subject)
    new = subject.clean.at[point].clone()
    new[n - 1 :] = subject.donor.at[point][n - 1 :]
    logits = subject.run(writes={point: new}, reads=()).logits
    yield Comparison(point=point, got=logits[: n - 1], wanted=subject.clean.logits[: n - 1])


@FAMILY.law(
    reason="In a sweep each row has an edit of its own; an edit that is dropped looks like a part without effect.",
    mutant=writes_are("resid_pre", lambda old, new: torch.cat((new[:1], old[1:]))),
    threads=("nnsight #722", "nnsight #502"),
)
def each_row_gets_its_own_write(subject: TestSubject) -> Iterator[Comparison]:
    """Rows with different writes give what each gives with its write alone."""
    n, point = _n_rows(subject), _first_stream(subject)
    new = subject.donor.at[point].expand(n, *subject.donor.at[point].shape[1:])
    logits = subject.run(writes={point: new}, reads=()).logits
    for row in range(n):
        part = slice(row, row + 1)
        alone = subject.run(subject.tokens[part], writes={point: new[part]}, reads=()).logits
        yield Comparison(point=point, got=logits[part], wanted=alone)


@FAMILY.law(
    reason="A mean over prompts is written into all rows at once.",
    mutant=writes_are("resid_pre", lambda old, new: torch.cat((new[:-1], old[-1:]))),
)
def one_write_for_all_rows_reaches_all(subject: TestSubject) -> Iterator[Comparison]:
    """The mean of a stream over rows, written into every row, makes all rows the same."""
    n, point = _n_rows(subject), _first_stream(subject)
    rows = subject.clean.at[point]
    mean = rows.mean(0, keepdim=True).expand(n, *rows.shape[1:]).clone()
    logits = subject.run(writes={point: mean}, reads=()).logits
    yield Comparison(point=point, got=logits, wanted=logits[:1].expand_as(logits))


class _SeesFiller(Faulty):
    """Logits depend on the last token of the batch."""

    def run_with_hooks(self, inputs: Tensor, fwd_hooks: Any = (), **options: Any) -> Tensor:
        return super().run_with_hooks(inputs, fwd_hooks=fwd_hooks, **options) * (1 + 0.01 * inputs[:, -1:, None])


@FAMILY.law(
    reason="Prompts of unequal lengths are filled up on the right; only rows that are longer have tokens there.",
    mutant=_SeesFiller,
)
def a_shorter_row_equals_the_row_alone(subject: TestSubject) -> Iterator[Comparison]:
    """A row filled up on the right, without a mask, gives the logits of the row alone where attention is causal."""
    n_pos = subject.tokens.shape[1]
    if subject.cfg.attention_dir != "causal" or n_pos < 3 or reads_vectors(subject.model):
        subject.skip("attention is not causal, prompts are short, or they are vectors")
    filled = torch.cat((subject.tokens[:, : n_pos - 2], subject.donors[:, n_pos - 2 :]), 1)
    alone = subject.run(subject.tokens[:, : n_pos - 2], reads=()).logits
    yield Comparison(point="logits", got=subject.run(filled, reads=()).logits[:, : n_pos - 2], wanted=alone)


class _MasksLikeTheFirst(Faulty):
    """Every row gets the attention mask of the first."""

    def run_with_hooks(self, inputs: Tensor, fwd_hooks: Any = (), **options: Any) -> Tensor:
        if (mask := options.get("attention_mask")) is not None:
            options["attention_mask"] = mask[:1].expand_as(mask)
        return super().run_with_hooks(inputs, fwd_hooks=fwd_hooks, **options)


@FAMILY.law(
    reason="Prompts of unequal lengths are padded on the left by tokenizers that are made for generation.",
    mutant=_MasksLikeTheFirst,
    threads=("nnsight #722",),
)
def rows_of_unequal_length_keep_their_masks(subject: TestSubject) -> Iterator[Comparison]:
    """Each of two rows, padded on the left by different numbers of tokens, gives the logits of the row alone."""
    n_pos = subject.tokens.shape[1]
    if subject.cfg.attention_dir != "causal" or n_pos < 4 or reads_vectors(subject.model):
        subject.skip("attention is not causal, prompts are short, or they are vectors")
    mask = torch.ones((2, n_pos), dtype=torch.long, device=subject.tokens.device)
    mask[1, :2] = 0
    tokens = torch.cat((subject.tokens[:1], torch.cat((subject.donors[:1, :2], subject.tokens[:1, :-2]), 1)))
    logits = subject.run(tokens, reads=(), attention_mask=mask).logits
    for row, n_hidden in ((0, 0), (1, 2)):
        alone = subject.run(tokens[row : row + 1, n_hidden:], reads=()).logits
        yield Comparison(point="logits", got=logits[row : row + 1, n_hidden:], wanted=alone)


class _ShiftedNames:
    """A tokenizer that gives every token the name of the next."""

    def __init__(self, good: Any):
        self.good = good

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["good"], name)

    def __call__(self, text: str, **options: Any) -> Any:
        return self.good(text, **options)

    def decode(self, numbers: Any, *args: Any, **options: Any) -> Any:
        return self.good.decode([int(number) + 1 for number in torch.as_tensor(numbers).flatten()], *args, **options)


def _misnames(good: Any) -> Any:
    faulty = Faulty(good)
    vars(faulty)["tokenizer"] = _ShiftedNames(good.tokenizer)
    return faulty


@FAMILY.law(
    reason="Figures and tables name positions by their tokens; a label that is off by one misleads every reader.",
    mutant=_misnames,
)
def names_of_tokens_go_round(subject: TestSubject) -> Iterator[Comparison]:
    """The text of a token, where it is one token again, has the number of that token."""
    tokenizer = getattr(subject.model, "tokenizer", None)
    if tokenizer is None:
        subject.skip("the model has no tokenizer")
    special = {*getattr(tokenizer, "all_special_ids", ())}
    numbers = [n for n in range(0, subject.cfg.d_vocab, max(1, subject.cfg.d_vocab // 64)) if n not in special]
    again = {n: tokenizer(tokenizer.decode([n]), add_special_tokens=False)["input_ids"] for n in numbers}
    single = {n: found[0] for n, found in again.items() if len(found) == 1 and found[0] not in special}
    if len(single) < len(numbers) / 2:
        subject.skip("most tokens have no text that is one token")
    yield Comparison(
        point="tokenizer", got=torch.tensor([*single.values()]), wanted=torch.tensor([*single]), exact=True
    )
