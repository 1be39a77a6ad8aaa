"""Reach: a write at a hook point has exactly the consequence that an independent computation of the rest gives.

The donors' run is the independent computation. A write of the donors' values leads to the donors' values wherever they
determine what follows: their queries, keys and values to their z, their z to their attention output, their stream to
their logits. Where they do not, a formula of one step does: a stream plus what is written to it, a pattern times
values. After the block, the logits are those of a run in which the stream that results is written itself.
"""

from collections.abc import Iterator, Mapping
from functools import partial

import torch
from einops import einsum
from torch import Tensor

from mnemoscope.core.site import KINDS
from mnemoscope.hookcheck.law import Check, Comparison, Family, Mutant
from mnemoscope.hookcheck.mutants import ignores_writes, rolled, writes_are
from mnemoscope.hookcheck.subject import Passed, TestSubject, Writes

FAMILY = Family(name="reach", analyses=("ablate", "patch", "edges", "discover", "shapley"))
_Expected = Mapping[str, Tensor]
NORMALIZED = "hook_normalized"


def consequences(
    subject: TestSubject, layer: int | None, writes: Writes, expected: _Expected, logits: Tensor | None = None
) -> Iterator[Comparison]:
    """Compare a run with writes in one block with what is expected of it, then its stream and its logits."""
    run = subject.run(writes=writes)
    for point, value in writes.items():
        if isinstance(value, Tensor):
            yield Comparison(point=point, got=run.at[point], wanted=value.expand_as(run.at[point]))
    for point, wanted in expected.items():
        if point in run.at:
            yield Comparison(point=point, got=run.at[point], wanted=wanted)
    if logits is not None:
        yield Comparison(point="logits", got=run.logits, wanted=logits)
    yield from _onward(subject, 0 if layer is None else layer, run, {*writes})


def _onward(subject: TestSubject, layer: int, run: Passed, written: set[str]) -> Iterator[Comparison]:
    """The stream after a block is the sum of what the run shows, and the logits follow from that stream alone."""

    def at(kind: str) -> Tensor | None:
        return run.at.get(subject.point(kind, layer))

    before, attn, middle, mlp, after = map(at, ("resid_pre", "attn_out", "resid_mid", "mlp_out", "resid_post"))
    mid, end = (subject.point(kind, layer) for kind in ("resid_mid", "resid_post"))
    if before is not None and attn is not None and middle is not None and mid not in written:
        yield Comparison(point=mid, got=middle, wanted=before + attn)
    if after is None or end in written:
        return
    if middle is not None and mlp is not None:
        yield Comparison(point=end, got=after, wanted=middle + mlp)
    elif middle is None and before is not None and attn is not None:
        yield Comparison(point=end, got=after, wanted=before + attn + (0 if mlp is None else mlp))
    again = subject.run(writes={end: after}, reads=())
    yield Comparison(point="logits", got=run.logits, wanted=again.logits)


def _donated(subject: TestSubject, layer: int | None, *kinds: str) -> dict[str, Tensor]:
    """The donors' activations of these kinds, where the model has them."""
    points = [subject.point(kind, layer) for kind in kinds]
    return {point: subject.donor.at[point] for point in points if point in subject.donor.at}


def _reach(
    name: str,
    sentence: str,
    check: Check,
    *,
    mutant: Mutant,
    kinds: tuple[str, ...] = (),
    threads: tuple[str, ...] = (),
    reason: str = "",
) -> None:
    """Add a law; unless `kinds` say otherwise, it is about the kind of its name where there is one."""
    FAMILY.add(
        f"reach-of-{name.replace('_', '-')}",
        sentence,
        check,
        reason=reason or f"A patch or an ablation at {name} measures something else, or nothing.",
        mutant=mutant,
        threads=threads,
        kinds=kinds or ((name,) if name in KINDS else ()),
    )


def _stream(subject: TestSubject, *, kind: str) -> Iterator[Comparison]:
    for layer in subject.require(kind):
        after = {} if layer is None else _donated(subject, layer, "resid_post")
        yield from consequences(subject, layer, _donated(subject, layer, kind), after, subject.donor.logits)


for _kind in ("embed", "resid_pre", "resid_mid", "resid_post"):
    _reach(
        _kind,
        f"Another prompt's {_kind}, written in a run, gives the other prompt's logits.",
        partial(_stream, kind=_kind),
        mutant=ignores_writes(_kind),
        threads=("TransformerLens: resid_mid of a bridge reaches the MLP only",) if _kind == "resid_mid" else (),
    )


def _positions(subject: TestSubject) -> Iterator[Comparison]:
    (stream,) = (subject.point("resid_pre", layer) for layer in subject.layers_of("resid_pre")[:1])
    if stream != "blocks.0.hook_resid_pre" or getattr(subject.cfg, "post_embedding_ln", False):
        subject.skip("no stream is the sum of tokens and positions alone")
    for layer in subject.require("pos_embed"):
        point = subject.point("pos_embed", layer)
        own = subject.clean.at[point]
        new = own.flip(-2)
        expected = {stream: subject.clean.at[stream] - own + new}
        yield from consequences(subject, None, {point: new}, expected)


_reach(
    "pos_embed",
    "Positions that are written in reverse enter the first residual stream in reverse.",
    _positions,
    mutant=ignores_writes("pos_embed"),
)


def _added(subject: TestSubject, *, kind: str) -> Iterator[Comparison]:
    for layer in subject.require(kind):
        yield from consequences(subject, layer, _donated(subject, layer, kind), {})


for _kind, _part in (("attn_out", "attention"), ("mlp_out", "the MLP")):
    _reach(
        _kind,
        f"What is written at {_kind} is added to the residual stream in place of the output of {_part}.",
        partial(_added, kind=_kind),
        mutant=ignores_writes(_kind),
    )


def _step(subject: TestSubject, *, kinds: tuple[str, ...], following: str) -> Iterator[Comparison]:
    """Donors' activations of all `kinds` lead to the donors' activation of the following kind."""
    for layer in subject.require(kinds[0], following):
        expected = _donated(subject, layer, following)
        yield from consequences(subject, layer, _donated(subject, layer, *kinds), expected)


for _kind, _kinds, _following in (
    ("scores", ("scores",), "pattern"),
    ("z", ("z",), "attn_out"),
    ("pre", ("pre", "mlp.hook_pre_linear"), "post"),
    ("post", ("post",), "mlp_out"),
):
    _reach(
        _kind,
        f"Another prompt's {_kind}, written in a run, gives the other prompt's {_following} in that block.",
        partial(_step, kinds=_kinds, following=_following),
        mutant=ignores_writes(_kind),
        threads=("TransformerLens: native bridges ignore writes at scores",) if _kind == "scores" else (),
    )

_reach(
    "queries-and-keys",
    "Another prompt's q, k and v together, written in a run, give the other prompt's z in that block.",
    partial(_step, kinds=("q", "k", "v"), following="z"),
    mutant=writes_are("q", lambda old, new: new.flip(-1)),
    kinds=("q", "k", "v"),
)
_reach(
    "rotated-queries-and-keys",
    "Another prompt's rotated q and k, and its v, written in a run, give the other prompt's z in that block.",
    partial(_step, kinds=("attn.hook_rot_q", "attn.hook_rot_k", "v"), following="z"),
    mutant=ignores_writes("attn.hook_rot_q"),
    kinds=("rot_q", "rot_k"),
)


def _normalised(subject: TestSubject, *, norm: str, following: str) -> Iterator[Comparison]:
    for layer in subject.require(f"{norm}.{NORMALIZED}", following):
        kinds = ("q", "k", "v") if following == "q" else ("pre", "mlp.hook_pre_linear")
        writes = _donated(subject, layer, f"{norm}.{NORMALIZED}")
        yield from consequences(subject, layer, writes, _donated(subject, layer, *kinds))


for _norm, _following in (("ln1", "q"), ("ln2", "pre")):
    _reach(
        f"{_norm}-normalized",
        f"Another prompt's rows as {_norm} leaves them, written in a run, give the other prompt's {_following}.",
        partial(_normalised, norm=_norm, following=_following),
        mutant=ignores_writes(f"{_norm}.{NORMALIZED}"),
        kinds=("normalized",),
        threads=("TransformerLens #1527",),
    )


def _last_norm(subject: TestSubject) -> Iterator[Comparison]:
    point = f"ln_final.{NORMALIZED}"
    if point not in subject.clean.at:
        subject.skip(f"no run passes {point}")
    run = subject.run(writes={point: subject.donor.at[point]}, reads=())
    yield Comparison(point=point, got=run.logits, wanted=subject.donor.logits)


_reach(
    "ln-final-normalized",
    "Another prompt's rows as the last normalisation leaves them, written in a run, give the other prompt's logits.",
    _last_norm,
    mutant=ignores_writes(f"ln_final.{NORMALIZED}"),
    kinds=("normalized",),
    threads=("TransformerLens #1527",),
)


def _scales(subject: TestSubject) -> Iterator[Comparison]:
    norms = [(f"{norm}.hook_scale", f"{norm}.{NORMALIZED}") for norm in ("ln1", "ln2")]
    points = [(subject.point(a, layer), subject.point(b, layer)) for layer in subject.layers for a, b in norms]
    for scale, normalized in [*points, ("ln_final.hook_scale", f"ln_final.{NORMALIZED}")]:
        if scale in subject.clean.at and normalized in subject.clean.at:
            halved = subject.run(writes={scale: 2 * subject.clean.at[scale]}, reads=(normalized,)).at[normalized]
            yield Comparison(point=scale, got=halved, wanted=subject.clean.at[normalized] / 2)


_reach(
    "scales",
    "A normalisation with twice the scale gives half the rows.",
    _scales,
    mutant=ignores_writes("ln1.hook_scale"),
    kinds=("scale",),
    threads=("TransformerLens #1527",),
    reason="Frozen normalisations, as direct attribution needs them, are writes of the scale.",
)


def by_head(activation: Tensor, n_heads: int) -> Tensor:
    """Keys or values `batch pos key_head d_head` for each head that reads them."""
    return activation.repeat_interleave(n_heads // activation.shape[2], 2)


def visible(scores: Tensor) -> Tensor:
    """Mask of the scores that are not hidden; without a softmax hidden ones are zero."""
    return scores.isfinite() & (scores > torch.finfo(scores.dtype).min / 4) & (scores != 0)


def _factors(subject: TestSubject, *, kind: str) -> Iterator[Comparison]:
    """Scores are linear in queries and in keys, apart from what is added to them without either."""
    cfg = subject.cfg
    if getattr(cfg, "use_qk_norm", False) or getattr(cfg, "clip_qkv", None) is not None:
        subject.skip("queries and keys are normalised or clipped")
    if (getattr(cfg, "attn_scores_soft_cap", None) or 0) > 0:
        subject.skip("scores are capped, so they are not linear in queries and keys")
    for layer in subject.require(kind, "scores"):
        if torch.equal(*(subject.clean.at[subject.point(each, layer)] for each in ("scores", "pattern"))):
            subject.skip("the hook point of scores shows the pattern")
        point, end = subject.point(kind, layer), subject.point("scores", layer)
        own, scores = subject.clean.at[point], subject.clean.at[end]
        if own.ndim != 4:
            continue
        factor = subject.noise(own[..., :1])
        n_heads = scores.shape[1]
        nothing, changed = (subject.run(writes={point: value}).at[end] for value in (own * 0, own * factor))
        by = by_head(factor, n_heads)[..., 0].transpose(1, 2)
        by = by[..., :, None] if kind == "q" else by[..., None, :]
        got, wanted = changed - nothing, by * (scores - nothing)
        yield Comparison(
            point=point, got=got.masked_fill(~visible(scores), 0), wanted=wanted.masked_fill(~visible(scores), 0)
        )
        yield from consequences(subject, layer, {point: own * factor}, {end: changed})


for _kind in ("q", "k"):
    _reach(
        _kind,
        f"Factors that are written at {_kind}, one for each head and position, are factors of its scores.",
        partial(_factors, kind=_kind),
        mutant=ignores_writes(_kind),
    )


def _values(subject: TestSubject) -> Iterator[Comparison]:
    for layer in subject.require("v", "pattern", "z"):
        v, z, pattern = (subject.point(kind, layer) for kind in ("v", "z", "pattern"))
        new = subject.donor.at[v]
        expected = mixed(subject.clean.at[pattern], new)
        yield from consequences(subject, layer, {v: new}, {z: expected})


def mixed(pattern: Tensor, values: Tensor) -> Tensor:
    """Values mixed by a pattern, `batch pos head_index d_head`."""
    values = by_head(values, pattern.shape[1])
    return einsum(pattern, values, "batch head query key, batch key head d_head -> batch query head d_head")


_reach(
    "v",
    "Values that are written are mixed by the pattern.",
    _values,
    mutant=ignores_writes("v"),
)


def _patterns(subject: TestSubject) -> Iterator[Comparison]:
    for layer in subject.require("v", "pattern", "z"):
        v, z, point = (subject.point(kind, layer) for kind in ("v", "z", "pattern"))
        own = subject.clean.at[point]
        new = subject.noise(own).exp() * (own != 0)
        new = new / new.sum(-1, keepdim=True).clamp(min=1e-6)
        yield from consequences(subject, layer, {point: new}, {z: mixed(new, subject.clean.at[v])})


_reach(
    "pattern",
    "A pattern that is written mixes the values.",
    _patterns,
    mutant=ignores_writes("pattern"),
    threads=("TransformerLens: native bridges ignore writes at pattern",),
)


def _shared_keys(subject: TestSubject) -> Iterator[Comparison]:
    for layer in subject.require("v", "z"):
        v, z = (subject.point(kind, layer) for kind in ("v", "z"))
        own = subject.clean.at[v]
        n_heads, n_shared = subject.clean.at[z].shape[2], own.shape[2]
        if n_shared == n_heads:
            subject.skip("every head has keys and values of its own")
        for index in range(n_shared):
            new = own.clone()
            new[:, :, index] = 0
            after = subject.run(writes={v: new}, reads=(z,)).at[z]
            changed = subject.changed(after, subject.clean.at[z]).any(0).any(0)
            wanted = torch.arange(n_heads, device=changed.device) // (n_heads // n_shared) == index
            yield Comparison(point=v, got=changed.float(), wanted=wanted.float(), exact=True)


_reach(
    "shared-values",
    "A write at the values of one key/value head changes z of the heads that share it, and of no other.",
    _shared_keys,
    mutant=writes_are("v", lambda old, new: rolled(new)),
    reason="An edge through a shared key or value head would be credited to the wrong heads.",
)


def _one_head(subject: TestSubject) -> Iterator[Comparison]:
    for layer in subject.require("q", "z"):
        q, z = (subject.point(kind, layer) for kind in ("q", "z"))
        own, before = subject.clean.at[q], subject.clean.at[z]
        if own.ndim != 4 or own.shape[2] != before.shape[2]:
            continue
        new = own.clone()
        new[:, :, 0] = subject.donor.at[q][:, :, 0]
        after = subject.run(writes={q: new}, reads=(z,)).at[z]
        yield Comparison(point=q, got=after[:, :, 1:], wanted=before[:, :, 1:])


_reach(
    "one-head",
    "A write at the queries of one head changes z of no other head.",
    _one_head,
    mutant=writes_are("q", lambda old, new: rolled(new)),
    reason="Effects of heads are told apart by their numbers.",
    threads=("a head-ablation script that reshapes the projected output",),
)


def _one_position(subject: TestSubject) -> Iterator[Comparison]:
    for layer in subject.require("z", "attn_out"):
        z, end = (subject.point(kind, layer) for kind in ("z", "attn_out"))
        new = subject.clean.at[z].clone()
        new[:, 0] = subject.donor.at[z][:, 0]
        after, before = subject.run(writes={z: new}, reads=(end,)).at[end], subject.clean.at[end]
        yield Comparison(point=z, got=after[:, :1], wanted=subject.donor.at[end][:, :1])
        yield Comparison(point=z, got=after[:, 1:], wanted=before[:, 1:])


_reach(
    "one-position",
    "A write at z of one position changes the output of attention at that position, and at no other.",
    _one_position,
    mutant=writes_are("z", lambda old, new: rolled(new, 1)),
    reason="A sweep over positions credits effects to the wrong tokens.",
    threads=("nnsight #722",),
)
