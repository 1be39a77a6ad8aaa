"""The mechanism that is enough for each head: reverse engineering by replacement, made automatic.

1. For each head the simplest mechanism is taken that holds the loss and, if the head is needed, is better than
   itself aimed at other targets. Simpler is: fewer fitted numbers, then fewer parts, then earlier in the list.
2. What was taken is tested on prompts that had no part in the choice.
3. All heads get their mechanisms at once.
4. Every path that is left is taken out, one at a time (`paths`).

The procedure is that of Musat, "Mechanism and emergence of stacked attention heads in multi-layer transformers",
whose author chose by eye. What counts as held, as cost and as noise is fixed in `losses`.

Mechanisms may be *fitted*: the mean attention of a head, query by query, the same for every sequence. A mechanism
without fitted numbers has to be simpler than these, which say whether a head looks at the content of the sequence at
all. They show nothing about how the weights come about.

*Shows* an attention circuit that is enough for the skills on this distribution, and which of its paths are needed.

*Does not show* that it is the only one: of two mechanisms that both hold, the simpler wins, not the truer, and two
that look alike on this distribution cannot be distinguished. It says nothing about what MLPs and values do. A head is
"not needed" alone if another one can stand in for it: then step 3 fails.

`read_heads` puts this search together with the shares and the scores of every head (`analyses.attention_shares`,
`analyses.attention_scores`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.attention import layer_attention
from mnemoscope.analyses.attention_replacement.losses import TOLERANCE, HeadIndex, LossMeter, loss_meter
from mnemoscope.analyses.attention_replacement.paths import FALLBACKS, N_PATHS_AT_ONCE, Grain, prune, remove_paths
from mnemoscope.analyses.attention_replacement.replacement import (
    ablation_effect,
    beats_control,
    control_score,
    replace_one,
    replace_together,
)
from mnemoscope.analyses.attention_replacement.set_patterns import prepare_trials
from mnemoscope.analyses.attention_scores import head_scores
from mnemoscope.analyses.attention_shares import attention_by_mechanism
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.numerics import to_numpy
from mnemoscope.core.patterns import (
    Mechanism,
    after_earlier_same,
    check_names,
    checked_pattern,
    earlier,
    earlier_same,
    first,
    fixed,
    identity,
    previous,
    same_slot,
    slot_mechanisms,
    unspecified_queries,
    with_fallback,
)
from mnemoscope.core.protocols import HookedModel, ModelLike, Task, resolve_model
from mnemoscope.core.skills import Skills, random_halves

NO_MECHANISM = "none"
LEARNED = "learned mean"
MechanismCandidates = Callable[[HookedModel, HeadIndex, Batch], Sequence[Mechanism]]
"""Candidates for one head, read off a model on the sequences to choose by."""


@check_arguments
def reverse_engineer(
    model: ModelLike,
    batch: Batch,
    mechanisms: Sequence[Mechanism],
    *,
    skills: Skills | None = None,
    fallbacks: Sequence[Mechanism] = FALLBACKS,
    learned: bool = True,
    by: Grain = "mechanism",
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> xr.DataTree:
    """The whole procedure.

    Args:
        model: A run, a subject or any hooked model.
        batch: The sequences: every other one to choose by, the rest to test on. Means come from the first half.
        mechanisms: What to try; of equally simple ones the earlier is taken.
        skills: For each skill the positions whose answer it alone gives; `all`, every scored position, is added.
        fallbacks: What completes mechanisms that do not say something about every query, and what stands in for
            paths; each must say something about every query.
        learned: Whether to try each head's own mean pattern too, the last by its number of parameters.
        by: A path is a part of a head's `mechanism`, one `query` position of such a part, or one `cell`.
        tolerance: By how much a loss (nats, or squared error) may rise and still count as held.
        seed: Of the permuted targets.

    Returns:
        A tree: `selection` has `rise` and `holds` of all that was tried, over (layer, head, mechanism). `heads` has,
        over (layer, head), `best` (the name of the mechanism, or "none"), `n_parameters` and `verdict`, and what
        `replace_each` gives for it on the test half. `joint` is `replace_heads` with all of them. `paths` is missing if
        no path is left: over (path, later, skill) `loss` (nats), `accuracy`, `rise` without the path and `rise_error`,
        with the attention of later heads `set` or `learned`; over (path, later) `costs` and `fallback`; over path
        `needed`, `layer`, `head` and `part`, the part of its mechanism.

        Verdicts: `explained` (the head is needed, the mechanism holds the loss and beats its control), `not needed`
        (its ablation costs nothing: nothing to explain, whatever `best` says), `unexplained`.

    Raises:
        InputError: There is no mechanism, two share a name, one gives what could not be attention, a fallback says
            nothing about some query, or a skill is tested in no sequence of one half.

    >>> found = ms.analyses.reverse_engineer(model, batch, [ms.core.patterns.uniform()])
    >>> sorted(found)
    ['heads', 'joint', 'selection']
    """
    model = resolve_model(model, batch=batch)
    options = {"skills": skills, "fallbacks": fallbacks, "learned": learned, "tolerance": tolerance, "seed": seed}
    found = _search(model, batch, mechanisms, **options)
    idle, verdicts = {fallback.name for fallback in fallbacks}, found.best.verdict.values
    left = [h for h, mechanism in found.chosen.items() if mechanism.name not in idle or verdicts[h] != "not needed"]
    table = remove_paths(found.at, found.chosen, left, by, fallbacks)
    return xr.DataTree.from_dict(found.results if table is None else {**found.results, "paths": table})


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionCircuit:
    """An attention circuit, and what it was found on.

    Attributes:
        mechanisms: Of every head that was replaced, without the paths that were dropped.
        heads: As `heads` of `reverse_engineer`.
        joint: The loss with all mechanisms at once, before paths were dropped, as `replace_heads` gives it.
        pruned: The same with the paths that are left.
        paths: Of the paths that are left, taken out one at a time, as in `reverse_engineer`; none: no path is left.
        dropped: Names of the paths that were dropped, in that order.

    >>> found = ms.analyses.find_circuit(model, batch, [ms.core.patterns.uniform()])
    >>> isinstance(found, ms.analyses.AttentionCircuit), found.dropped
    (True, ())
    """

    mechanisms: dict[HeadIndex, Mechanism]
    heads: xr.Dataset
    joint: xr.Dataset
    pruned: xr.Dataset
    paths: xr.Dataset | None
    dropped: tuple[str, ...]


@check_arguments
def find_circuit(
    model: ModelLike,
    batch: Batch,
    mechanisms: Sequence[Mechanism],
    *,
    skills: Skills | None = None,
    fallbacks: Sequence[Mechanism] = FALLBACKS,
    own: MechanismCandidates | None = None,
    learned: bool = False,
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> AttentionCircuit:
    """Replace all attention by mechanisms and drop the paths that are not needed.

    `own` gives more candidates for each head, from the model, the head (layer and number) and the sequences to choose
    by; those that say nothing about some queries get each of the fallbacks. Other arguments and errors are as for
    `reverse_engineer`. A path is a part of a head's mechanism, and also needed where only the learned attention of
    later layers misses it.

    >>> found = ms.analyses.find_circuit(model, batch, ms.core.patterns.common_mechanisms())
    >>> found.heads.holds.dims
    ('layer', 'head')
    """
    model = resolve_model(model, batch=batch)
    options = {"skills": skills, "fallbacks": fallbacks, "learned": learned, "tolerance": tolerance, "seed": seed}
    found = _search(model, batch, mechanisms, own=own, **options)
    rest, dropped, table = prune(found.at, found.chosen, fallbacks)
    heads, joint = found.results["heads"], found.results["joint"]
    pruned = replace_together(found.at, rest)
    return AttentionCircuit(mechanisms=rest, heads=heads, joint=joint, pruned=pruned, paths=table, dropped=dropped)


@dataclass(frozen=True, kw_only=True, eq=False)
class _SearchResult:
    """The results of the first three steps of the procedure: `selection`, `heads` and `joint`.

    `chosen` has the mechanism of each head, without the heads for which none will do; `best` are the trials of these on
    the test half (`at`).
    """

    chosen: dict[HeadIndex, Mechanism]
    best: xr.Dataset
    at: LossMeter
    results: dict[str, xr.Dataset]


def _search(
    model: HookedModel,
    batch: Batch,
    mechanisms: Sequence[Mechanism],
    *,
    skills: Skills | None,
    fallbacks: Sequence[Mechanism],
    learned: bool,
    own: MechanismCandidates | None = None,
    **options: Any,
) -> _SearchResult:
    """The first three steps of `reverse_engineer`."""
    check_names(mechanisms)
    for fallback in fallbacks:
        if not _covers_all_queries(fallback, batch):
            raise InputError(f"fallback {fallback.name} says nothing about some queries; complete it with `otherwise`")
    first, second = random_halves(batch, skills)
    prepared = partial(loss_meter, model, reference=first[0], **options)
    selection, at = prepared(*first), prepared(*second)

    def candidates(head: HeadIndex) -> list[Mechanism]:
        read_off = [] if own is None else _complete_mechanisms(own(model, head, first[0]), fallbacks, first[0])
        return [*read_off, *(_fitted(model, head, mechanisms, fallbacks, first[0]) if learned else [])]

    chosen, tried = _choose(selection, _complete_mechanisms(mechanisms, fallbacks, batch), candidates)
    best = at.by_layer([_tested(at, head, chosen.get(head)) for head in at.heads])
    results = {
        "selection": tried.assign_attrs(selection.attrs),
        "heads": best.assign_attrs(at.attrs),
        "joint": replace_together(at, chosen),
    }
    return _SearchResult(chosen=chosen, best=best, at=at, results=results)


def _choose(
    at: LossMeter, candidates: Sequence[Mechanism], own: Callable[[HeadIndex], Sequence[Mechanism]]
) -> tuple[dict[HeadIndex, Mechanism], xr.Dataset]:
    """The simplest mechanism of each head that surely holds the loss and, if the head is needed, beats its control.

    `own` gives further candidates for a head. Returns head to mechanism, without the heads for which none will do, and
    the trials over (layer, head, mechanism), where `rise` is NaN for what was not tried.
    """
    chosen: dict[HeadIndex, Mechanism] = {}
    rows, run = [], prepare_trials(at, {})
    for head in at.heads:
        needed = at.loss_rise(at.score_ablated(head)).costs(at.tolerance)
        ordered, tried = sorted([*candidates, *own(head)], key=lambda m: (m.n_parameters, len(m.parts))), {}
        some = (ordered[start : start + N_PATHS_AT_ONCE] for start in range(0, len(ordered), N_PATHS_AT_ONCE))
        scores = (score for each in some for score in run({}, head, [checked_pattern(m, at.by.batch) for m in each])[1])
        for mechanism, after in zip(ordered, scores, strict=True):
            change = at.loss_rise(after)
            holds = change.holds(at.tolerance, surely=True)
            fits = holds and head not in chosen
            if fits and (not needed or beats_control(at, control_score(at, head, mechanism), after)):
                chosen[head] = mechanism
            tried[mechanism.name] = xr.Dataset({"rise": ("skill", to_numpy(change.mean)), "holds": ((), holds)})
        row = xr.concat(tried.values(), "mechanism", data_vars="all")
        rows.append(row.assign_coords(mechanism=list(tried), skill=at.by.names))
    names = list(dict.fromkeys(name for row in rows for name in row.mechanism.values.tolist()))
    absent = {"rise": float("nan"), "holds": False}
    return chosen, at.by_layer([row.reindex(mechanism=names, fill_value=absent) for row in rows])


def _tested(at: LossMeter, head: HeadIndex, mechanism: Mechanism | None) -> xr.Dataset:
    """The results of the chosen mechanism of a head on the test half."""
    ablated = at.score_ablated(head)
    effect = ablation_effect(at, ablated)
    result = replace_one(at, head, identity() if mechanism is None else mechanism, ablated)
    if mechanism is None:  # a head that keeps its attention: nothing was tried
        result = result.where(False).assign(holds=((), False), beats_control=((), False))
    explained = bool(result.holds) and bool(result.beats_control)
    values = {
        "best": NO_MECHANISM if mechanism is None else mechanism.name,
        "n_parameters": 0 if mechanism is None else mechanism.n_parameters,
        "verdict": "not needed" if not effect.needed.any() else "explained" if explained else "unexplained",
    }
    return xr.merge([result, effect]).assign({name: ((), value) for name, value in values.items()})


def _covers_all_queries(mechanism: Mechanism, batch: Batch) -> bool:
    """True if a mechanism says something about every query of a batch."""
    return not unspecified_queries(checked_pattern(mechanism, batch)).any()


def _complete_mechanisms(
    mechanisms: Sequence[Mechanism], fallbacks: Sequence[Mechanism], batch: Batch
) -> list[Mechanism]:
    """Mechanisms that say something about every query of a batch: one that does not gets each of the fallbacks."""
    return [
        candidate
        for mechanism in mechanisms
        for candidate in (
            [mechanism] if _covers_all_queries(mechanism, batch) else [with_fallback(mechanism, f) for f in fallbacks]
        )
    ]


def _fitted(
    model: HookedModel, head: HeadIndex, mechanisms: Sequence[Mechanism], fallbacks: Sequence[Mechanism], batch: Batch
) -> list[Mechanism]:
    """Mechanisms with weights read off the head: its mean pattern, and two kinds of fitted mechanisms.

    A mechanism whose keys are the same in every sequence gets the mean weights on them. One that says nothing about
    some queries gets the mean pattern there.
    """
    attention = layer_attention(model, head[0], batch)[:, head[1]]
    within = [learned_within(attention, mechanism, batch) for mechanism in mechanisms]
    elsewhere = [
        with_fallback(mechanism, learned_mean(attention, unless=mechanism.pattern(batch)))
        for mechanism in mechanisms
        if not _covers_all_queries(mechanism, batch)
    ]
    own = _complete_mechanisms([mechanism for mechanism in within if mechanism is not None], fallbacks, batch)
    return [*own, learned_mean(attention), *elsewhere]


def learned_mean(
    attention: Float[Tensor, "batch query key"], *, unless: Float[Tensor, "batch query key"] | None = None
) -> Mechanism:
    """The mean pattern over sequences, with one parameter less than keys for every query that it was fitted to.

    With `unless`, a pattern, the mean is over the sequences about whose query this says nothing. It is over all keys
    alike for a query about which it always says something.
    """
    counted = torch.ones_like(attention[..., 0]) if unless is None else unspecified_queries(unless).to(attention)
    n_pos = attention.shape[1]
    n_sequences = counted.sum(0)[:, None]
    even = torch.ones(n_pos, n_pos).to(attention).tril()
    mean = torch.where(n_sequences > 0, torch.einsum("bqk,bq->qk", attention, counted), even)
    free = int(torch.arange(n_pos, device=mean.device)[n_sequences[:, 0] > 0].sum())
    return fixed(LEARNED, mean / mean.sum(-1, keepdim=True), n_parameters=free)


def learned_within(attention: Float[Tensor, "batch query key"], mechanism: Mechanism, batch: Batch) -> Mechanism | None:
    """The mean pattern on the keys that a mechanism attends to, renormalised: its weights fitted, its keys unchanged.

    It has one parameter less than keys for every query. The result is None where there is nothing to fit, or nothing
    new. The keys then depend on the sequence or are all that there are, no query has two, or the head never attends to
    those of some query.
    """
    rows = checked_pattern(mechanism, batch)
    keys = rows > 0
    everything = torch.ones_like(keys[0]).tril()
    if (keys != keys[:1]).any() or (keys[0].sum(-1) < 2).all() or (keys[0] == everything).all():
        return None
    mean = attention.mean(0) * keys[0]
    total = mean.sum(-1, keepdim=True)
    if (total[~unspecified_queries(rows[0])] == 0).any():
        return None
    return fixed(f"{mechanism.name}, {LEARNED}", mean / total)


def read_heads(
    model: ModelLike, task: Task, batch: Batch, *, tolerance: float = TOLERANCE, seed: int = 0
) -> dict[str, xr.Dataset]:
    """The mechanisms of all heads.

    The task says in what slots its sequences come; pairs have other mechanisms. One half of the batch searches, the
    other tests; shares are taken over all of it. A mechanism may raise the loss by `tolerance` nats. The controls draw
    from `seed`.

    Returns:
        `heads`, `joint`, `paths`, `selection`: from `reverse_engineer`; `paths` is empty where no head was replaced.
        `shares`: from `attention_by_mechanism`.
        `scores`: from `head_scores`.

    Raises InputError where the model attends in both directions.

    >>> sorted(ms.analyses.read_heads(model, task, batch))
    ['heads', 'joint', 'paths', 'scores', 'selection', 'shares']
    """
    model = resolve_model(model, batch=batch)
    if model.cfg.attention_dir != "causal":
        raise InputError(
            "mechanisms that are sought look back, and this model attends in both directions; put your own in place by "
            "replace_each, or see attention by attention_by_mechanism"
        )
    mechanisms, period = slot_mechanisms(task.slot_size), task.slot_size
    tree = reverse_engineer(model, batch, mechanisms, skills=task.skills(batch), tolerance=tolerance, seed=seed)
    subgroups = task.subgroups(batch) or None
    shares = attention_by_mechanism(model, batch, _specific_first(period), subgroups=subgroups, period=period)
    found = {name: tree[name].to_dataset() for name in ("heads", "joint", "selection")}
    found["paths"] = tree["paths"].to_dataset() if "paths" in tree.children else xr.Dataset()
    return {**found, "shares": shares, "scores": head_scores(model, batch)}


def _specific_first(slot_size: int) -> tuple[Mechanism, ...]:
    """The mechanisms among which attention is divided: of two that name a key the earlier gets its weight."""
    copies = (earlier_same(period=slot_size), after_earlier_same(period=slot_size), identity())
    if slot_size == 1:
        return (*copies, previous(), first())
    places = (earlier(period=slot_size, phase=phase) for phase in reversed(range(slot_size)))
    return (*copies, same_slot(period=slot_size), *places)
