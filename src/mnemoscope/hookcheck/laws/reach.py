"""Reach: a write at a hook point has exactly the consequence that an independent computation of the rest gives.

`interventions.reach` has the laws of kinds of sites, by which analyses decide where they write. Here these get
sentences and mutants, and the laws of other hook points, of single heads and of single positions are added.
"""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from mnemoscope.core.site import KINDS
from mnemoscope.hookcheck.law import Check, Family, Mutant
from mnemoscope.hookcheck.mutants import ignores_writes, rolled, writes_are
from mnemoscope.interventions.comparison import Comparison
from mnemoscope.interventions.reach import REACH, Block, Trial, by_head, step, try_writes
from mnemoscope.interventions.subject import TestSubject

FAMILY = Family(name="reach", analyses=("ablate", "patch", "edges", "discover", "shapley"))
NORMALIZED = "hook_normalized"


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


_THREADS = {
    "resid_mid": ("TransformerLens: resid_mid of a bridge reaches the MLP only",),
    "scores": ("TransformerLens: native bridges ignore writes at scores",),
    "pattern": ("TransformerLens: native bridges ignore writes at pattern",),
}
for _kind, (_law, *_) in REACH.items():
    if _kind not in ("q", "k"):  # these two have one law together, and one of their own below
        threads = _THREADS.get(_kind, ())
        _reach(_kind, _law.sentence, _law.check, mutant=ignores_writes(_kind), threads=threads)

_reach(
    "queries-and-keys",
    REACH["q"][0].sentence,
    REACH["q"][0].check,
    mutant=writes_are("q", lambda old, new: new.flip(-1)),
    kinds=("q", "k", "v"),
)
for _name, _given, _to, _words in (
    ("rotated-queries-and-keys", ("attn.hook_rot_q", "attn.hook_rot_k", "v"), ("z",), "rotated q and k, and its v,"),
    ("ln1-normalized", (f"ln1.{NORMALIZED}",), ("q", "k", "v"), "rows as ln1 leaves them,"),
    ("ln2-normalized", (f"ln2.{NORMALIZED}",), ("pre", "mlp.hook_pre_linear"), "rows as ln2 leaves them,"),
):
    _law = step(*_given, to=_to, written=f"Another prompt's {_words} written in a run, give")
    _reach(
        _name,
        _law.sentence,
        _law.check,
        mutant=ignores_writes(_given[0]),
        kinds=("normalized",) if "norm" in _name else ("rot_q", "rot_k"),
        threads=("TransformerLens #1527",) if "norm" in _name else (),
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
    shape = subject.clean.at[subject.point(kind, subject.layers_of(kind)[0])].shape
    if len(shape) != 4:
        subject.skip("heads are not told apart")
    factor = subject.noise(torch.empty((*shape[:-1], 1), dtype=torch.float64))

    def times(by: Tensor) -> list[Trial]:
        def values(donor: Block) -> dict[str, Tensor]:
            own = Block(donor.layer, subject.clean.at).some(kind, "scores")
            return {kind: own[kind] * by.to(own[kind])} if len(own) == 2 else {}

        return try_writes(subject, values, reads=("scores",))

    for without, trial in zip(times(0 * factor), times(factor), strict=True):
        nothing, scores = (each["scores"] for each in (without.written, trial.clean))
        by = by_head(factor, scores.shape[1])[..., 0].transpose(1, 2).to(scores)
        by = by[..., :, None] if kind == "q" else by[..., None, :]
        got, wanted = trial.written["scores"] - nothing, by * (scores - nothing)
        yield Comparison(
            point=subject.point(kind, trial.written.layer),
            got=got.masked_fill(~visible(scores), 0),
            wanted=wanted.masked_fill(~visible(scores), 0),
        )
        yield from (trial.shows(kind, trial.new[kind]), *trial.onward())


for _kind in ("q", "k"):
    _reach(
        _kind,
        f"Factors that are written at {_kind}, one for each head and position, are factors of its scores.",
        partial(_factors, kind=_kind),
        mutant=ignores_writes(_kind),
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
