"""Reach: a write at a hook point has exactly the consequence that an independent computation of the rest gives.

The donors' run, into which nothing is written, is the independent computation. A write of the donors' values leads to
the donors' values wherever they determine what follows: their queries, keys and values to their z, their z to their
attention output, their stream to their logits. Where they do not, a formula of one step does: a stream plus what is
written to it, a pattern times values. After the block, the logits are those of a run in which the stream that results
is written itself.

One pass tries all layers. Each has rows with the writes, and rows into which the stream after its block is written.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from einops import einsum
from torch import Tensor

from mnemoscope.core.site import EMBEDDINGS
from mnemoscope.interventions.comparison import Comparison
from mnemoscope.interventions.subject import TestSubject, hook_name

_STREAM = ("resid_pre", "attn_out", "resid_mid", "mlp_out", "resid_post")
_AFTER = "resid_post"


@dataclass(frozen=True)
class Block:
    """Activations of some rows of a run by their kinds: in one layer, or None for embeddings and the first block."""

    layer: int | None
    at: Mapping[str, Tensor]

    def get(self, kind: str) -> Tensor | None:
        """The activation of a kind; None where the run did not pass it."""
        return self.at.get(hook_name(kind, self.layer))

    def __getitem__(self, kind: str) -> Tensor:
        return self.at[hook_name(kind, self.layer)]

    def some(self, *kinds: str) -> dict[str, Tensor]:
        """Activations of the kinds that the run passed; none at all where the first is missing."""
        found = {kind: self[kind] for kind in kinds if self.get(kind) is not None}
        return found if kinds[0] in found else {}

    def sum(self, end: str) -> Tensor | None:
        """The stream in the middle of the block or after it, from what is added to it; None where that is not shown."""
        before, attn, middle, mlp = map(self.get, _STREAM[:-1])
        start = None if before is None or attn is None else before + attn
        if end == "resid_mid":
            return start
        if middle is None:
            return start if start is None or mlp is None else start + mlp
        return None if mlp is None else middle + mlp


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Writes in one block: rows with them, rows without, and the donors.

    Attributes:
        new: What is written, by kind.
        donor: The donors' run.
        written: The rows with the writes.
        clean: The rows without, up to the stream after the block, which they have from the rows with the writes.
        logits: Those of the written rows, of the clean ones, and of the donors.
    """

    new: Mapping[str, Tensor]
    donor: Block
    written: Block
    clean: Block
    logits: tuple[Tensor, Tensor, Tensor]

    def shows(self, kind: str, wanted: Tensor) -> Comparison:
        """Compare an activation of the written rows with what it must be."""
        got = self.written[kind]
        without = self.clean.sum(kind) if kind == _AFTER else self.clean.get(kind)
        point = hook_name(kind, self.written.layer)
        return Comparison(point=point, got=got, wanted=wanted.expand_as(got), without=without)

    def is_completed(self, tolerance: float) -> bool:
        """True if the stream after the block is the donors' once the change in its middle is added."""
        if self.written.get(_AFTER) is None:
            return False
        after = self.written[_AFTER] + self.new["resid_mid"] - self.clean["resid_mid"]
        without = self.clean.sum(_AFTER)
        return not Comparison(point=_AFTER, got=after, wanted=self.donor[_AFTER], without=without).breach(tolerance)

    def onward(self) -> Iterator[Comparison]:
        """The streams are the sums of what the rows show, and the logits follow from the last stream alone."""
        for end in ("resid_mid", _AFTER):
            wanted = self.written.sum(end)
            if end not in self.new and self.written.get(end) is not None and wanted is not None:
                yield self.shows(end, wanted)
        if _AFTER not in self.new and self.written.get(_AFTER) is not None:
            yield Comparison(point="logits", got=self.logits[0], wanted=self.logits[1])


def try_writes(
    subject: TestSubject,
    write: Callable[[Block], Mapping[str, Tensor]],
    *,
    embeddings: bool = False,
    reads: tuple[str, ...] = (),
) -> list[Trial]:
    """Write in every layer that is looked at, each in rows of its own.

    `write` gives the values by kind, from the donors' run; none where a layer lacks the kind. `reads` are observed too.
    """
    donors = [Block(layer, subject.donor.at) for layer in ((None,) if embeddings else subject.layers)]
    tried = [(donor, dict(new)) for donor in donors if (new := write(donor))]
    if not tried:
        subject.skip("no run passes hook points of this kind")
    n_groups, known = 2 * len(tried), subject.model.hook_dict
    puts: dict[str, dict[int, Tensor | None]] = {}
    watched: set[str] = set()
    for number, (donor, new) in enumerate(tried):
        for kind, value in new.items():
            puts.setdefault(hook_name(kind, donor.layer), {})[2 * number] = value
        puts.setdefault(hook_name(_AFTER, donor.layer), {})[2 * number + 1] = None
        watched |= {hook_name(kind, donor.layer) for kind in (*_STREAM, *new, *reads)}
    split = partial(_split, shape=(n_groups, len(subject.tokens)))
    writes = {name: partial(_put, split=split, into=into) for name, into in puts.items() if name in known}
    tokens = subject.tokens.repeat(n_groups, *(1,) * (subject.tokens.ndim - 1))
    run = subject.run(tokens, writes, reads=[name for name in watched if name in known])
    at = {name: groups for name, x in run.at.items() if (groups := split(x)) is not None}
    logits = run.logits.unflatten(0, (n_groups, -1))
    trials = []
    for number, (donor, new) in enumerate(tried):
        group, other = (Block(donor.layer, {name: x[2 * number + k] for name, x in at.items()}) for k in (0, 1))
        if len(group.some(*new)) == len(new):
            ends = (logits[2 * number], logits[2 * number + 1], subject.donor.logits)
            trials.append(Trial(new=new, donor=donor, written=group, clean=other, logits=ends))
    return trials


def _split(x: Tensor, *, shape: tuple[int, int]) -> Tensor | None:
    """An activation by groups of rows; positions may lie along the first axis too. None where it has other rows."""
    n_groups, n_rows = shape
    x = x.expand(n_groups * n_rows, *x.shape[1:]) if len(x) == 1 else x
    return x.unflatten(0, (n_groups, -1)) if len(x) % n_groups == 0 else None


def _put(x: Tensor, *, split: Callable[[Tensor], Tensor | None], into: Mapping[int, Tensor | None]) -> Tensor:
    """Put values into groups of rows; None stands for what the group before has."""
    groups = split(x)
    if groups is None:
        return x
    groups = groups.clone()
    for group, value in into.items():
        groups[group] = groups[group - 1] if value is None else value
    return groups.flatten(0, 1)


Values = Callable[[TestSubject, Block], Mapping[str, Tensor]]
Expected = Callable[[Trial], Mapping[str, Tensor]]


@dataclass(frozen=True, kw_only=True)
class Reach:
    """A law of what a write leads to.

    Attributes:
        sentence: The law.
        values: What is written, from the donors' run.
        expected: What the written rows must then show; None: the sums of the stream say it.
        final: True if the logits must be the donors'.
        embeddings: True if the write comes before the first block.
        reads: Kinds that are observed.
    """

    sentence: str
    values: Values
    expected: Expected | None
    final: bool = False
    embeddings: bool = False
    reads: tuple[str, ...] = ()

    def trials(self, subject: TestSubject) -> list[Trial]:
        """Try the writes in all layers, in one pass."""
        values = partial(self.values, subject)
        return try_writes(subject, values, embeddings=self.embeddings, reads=self.reads)

    def says(self, trial: Trial) -> list[Comparison]:
        """Comparisons of one trial; none where the rows do not show what the law is about."""
        wanted = {} if self.expected is None else self.expected(trial)
        found = [trial.shows(kind, x) for kind, x in wanted.items() if trial.written.get(kind) is not None]
        if self.final:
            found.append(Comparison(point="logits", got=trial.logits[0], wanted=trial.logits[2]))
        onward = [*trial.onward()]
        if not found and (self.expected is not None or not onward):
            return []
        return [*(trial.shows(kind, new) for kind, new in trial.new.items()), *found, *onward]

    def check(self, subject: TestSubject) -> Iterator[Comparison]:
        """Comparisons of all layers."""
        for trial in self.trials(subject):
            yield from self.says(trial)


def _stream(kind: str) -> Reach:
    sentence = f"Another prompt's {kind}, written in a run, gives the other prompt's logits."
    embeddings = kind in EMBEDDINGS
    return Reach(sentence=sentence, values=_donated(kind), expected=_donors(_AFTER), final=True, embeddings=embeddings)


def _added(kind: str, part: str) -> Reach:
    sentence = f"What is written at {kind} is added to the residual stream in place of the output of {part}."
    return Reach(sentence=sentence, values=partial(_as_large_as_the_stream, kind=kind), expected=None)


def step(*kinds: str, to: tuple[str, ...], written: str | None = None) -> Reach:
    """Donors' values of all kinds, in words `written`, lead to donors' values of others; the first must be there."""
    written = f"Another prompt's {kinds[0]}, written in a run, gives" if written is None else written
    sentence = f"{written} the other prompt's {to[0]} in that block."
    return Reach(sentence=sentence, values=_donated(*kinds), expected=_donors(*to), reads=to)


def _donated(*kinds: str) -> Values:
    return lambda subject, donor: donor.some(*kinds)


def _donors(*kinds: str) -> Expected:
    return lambda trial: trial.donor.some(*kinds)


def _reversed_positions(subject: TestSubject, donor: Block) -> Mapping[str, Tensor]:
    """Positions in reverse, where the first stream is the sum of tokens and positions alone."""
    own, stream = donor.get("pos_embed"), donor.get("resid_pre")
    if own is None or stream is None or own.shape[-1] != stream.shape[-1]:
        return {}
    return {} if getattr(subject.cfg, "post_embedding_ln", False) else {"pos_embed": own.flip(-2)}


def _moved_stream(trial: Trial) -> Mapping[str, Tensor]:
    clean = trial.clean
    return {"resid_pre": clean["resid_pre"] - clean["pos_embed"] + trial.new["pos_embed"]}


def _as_large_as_the_stream(subject: TestSubject, donor: Block, *, kind: str) -> Mapping[str, Tensor]:
    """The donors' stream before the block; what a part adds may vanish beside it."""
    large = donor.get("resid_pre")
    return {kind: large} if donor.get(kind) is not None and large is not None else donor.some(kind)


def by_head(activation: Tensor, n_heads: int) -> Tensor:
    """Keys or values `batch pos key_head d_head` for each head that reads them."""
    return activation.repeat_interleave(n_heads // activation.shape[2], 2)


def mixed(pattern: Tensor, values: Tensor) -> Tensor:
    """Values mixed by a pattern, `batch pos head_index d_head`."""
    values = by_head(values, pattern.shape[1])
    return einsum(pattern, values, "batch head query key, batch key head d_head -> batch query head d_head")


def _any_pattern(subject: TestSubject, donor: Block) -> Mapping[str, Tensor]:
    own = donor.get("pattern")
    if own is None:
        return {}
    new = subject.noise(own).exp() * (own != 0)
    return {"pattern": new / new.sum(-1, keepdim=True).clamp(min=1e-6)}


def _mixed_values(trial: Trial) -> Mapping[str, Tensor]:
    found = trial.written.some("pattern", "v")
    return {"z": mixed(*found.values())} if len(found) == 2 else {}


_TOGETHER = step("q", "k", "v", to=("z",), written="Another prompt's q, k and v together, written in a run, give")
REACH: Mapping[str, tuple[Reach, ...]] = {
    **{kind: (_stream(kind),) for kind in ("embed", "resid_pre", "resid_mid", "resid_post")},
    "pos_embed": (
        Reach(
            sentence="Positions that are written in reverse enter the first residual stream in reverse.",
            values=_reversed_positions,
            expected=_moved_stream,
            embeddings=True,
        ),
    ),
    "attn_out": (_added("attn_out", "attention"),),
    "mlp_out": (_added("mlp_out", "the MLP"),),
    "scores": (step("scores", to=("pattern",)),),
    "z": (step("z", to=("attn_out",)),),
    "pre": (step("pre", "mlp.hook_pre_linear", to=("post",)),),
    "post": (step("post", to=("mlp_out",)),),
    "q": (_TOGETHER,),
    "k": (_TOGETHER,),
    "v": (
        Reach(
            sentence="Values that are written are mixed by the pattern.",
            values=_donated("v"),
            expected=_mixed_values,
            reads=("pattern", "z"),
        ),
        _TOGETHER,
    ),
    "pattern": (
        Reach(
            sentence="A pattern that is written mixes the values.",
            values=_any_pattern,
            expected=_mixed_values,
            reads=("v", "z"),
        ),
    ),
}
"""By kind the laws that decide whether a model goes on with writes; a second is tried where the first holds nowhere."""
