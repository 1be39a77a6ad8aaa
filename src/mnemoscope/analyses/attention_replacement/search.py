"""The mechanism that is enough for each head: reverse engineering by replacement, made automatic.

1. For each head the simplest mechanism is taken that holds the loss and, if the head is needed, is better than
   itself aimed at other targets. Simpler is: fewer fitted numbers, then fewer parts, then earlier in the list.
2. What was taken is tested on prompts that had no part in the choice.
3. All heads get their mechanisms at once.
4. Every path that is left is taken out, one at a time (`paths`).

The procedure is that of Musat, "Mechanism and emergence of stacked attention heads in multi-layer transformers",
whose author chose by eye. What counts as held, as cost and as noise is fixed in `replacement`.

*Shows* an attention circuit that is enough for the skills on this distribution, and which of its paths are needed.

*Does not show* that it is the only one: of two mechanisms that both hold, the simpler wins, not the truer, and two
that look alike on this distribution cannot be distinguished. It says nothing about what MLPs and values do. A head is
"not needed" alone if another one can stand in for it: then step 3 fails.

`read_heads` puts this search, the shares and the scores of every head (`scores`) together.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import xarray as xr

from mnemoscope.analyses.attention_replacement.derived import attention_of, learned_mean, learned_within
from mnemoscope.analyses.attention_replacement.losses import Score
from mnemoscope.analyses.attention_replacement.paths import FALLBACKS, N_TOGETHER, Grain, removed
from mnemoscope.analyses.attention_replacement.replacement import (
    TOLERANCE,
    Assignment,
    Bench,
    Head,
    beaten,
    bench,
    by_layer,
    control,
    heads,
    joint,
    removal,
    trial,
)
from mnemoscope.analyses.attention_replacement.scores import attention_by_mechanism, head_scores
from mnemoscope.analyses.attention_replacement.trials import Trials, trials
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.patterns import (
    Mechanism,
    after_earlier_same,
    check_names,
    checked_pattern,
    earlier,
    earlier_same,
    first,
    for_slots,
    identity,
    previous,
    same_slot,
    silent,
    with_fallback,
)
from mnemoscope.core.protocols import HookedModel, Task
from mnemoscope.core.skills import Skills, halves

NONE = "none"
Own = Callable[[HookedModel, Head, Batch], Sequence[Mechanism]]
"""Candidates for one head, read off a model on the sequences to choose by."""


def speaks(mechanism: Mechanism, batch: Batch) -> bool:
    """True if a mechanism says something about every query of a batch."""
    return not silent(checked_pattern(mechanism, batch)).any()


def completed(mechanisms: Sequence[Mechanism], fallbacks: Sequence[Mechanism], batch: Batch) -> list[Mechanism]:
    """Mechanisms that say something about every query of a batch: one that does not gets each of the fallbacks."""
    return [
        candidate
        for mechanism in mechanisms
        for candidate in ([mechanism] if speaks(mechanism, batch) else [with_fallback(mechanism, f) for f in fallbacks])
    ]


def fitted(
    model: HookedModel, head: Head, mechanisms: Sequence[Mechanism], fallbacks: Sequence[Mechanism], batch: Batch
) -> list[Mechanism]:
    """Mechanisms with weights read off the head: its mean pattern, and two kinds of fitted mechanisms.

    A mechanism whose keys are the same in every sequence gets the mean weights on them. One that says nothing about
    some queries gets the mean pattern there.
    """
    attention = attention_of(model, head, batch)
    within = [learned_within(attention, mechanism, batch) for mechanism in mechanisms]
    elsewhere = [
        with_fallback(mechanism, learned_mean(attention, unless=mechanism.pattern(batch)))
        for mechanism in mechanisms
        if not speaks(mechanism, batch)
    ]
    own = completed([mechanism for mechanism in within if mechanism is not None], fallbacks, batch)
    return [*own, learned_mean(attention), *elsewhere]


def choose(
    at: Bench, candidates: Sequence[Mechanism], own: Callable[[Head], Sequence[Mechanism]]
) -> tuple[dict[Head, Mechanism], xr.Dataset]:
    """The simplest mechanism of each head that surely holds the loss and, if the head is needed, beats its control.

    `own` gives further candidates for a head. Returns head to mechanism, without the heads for which none will do, and
    the trials over (layer, head, mechanism), where `rise` is NaN for what was not tried.
    """
    chosen: dict[Head, Mechanism] = {}
    rows, run = [], trials(at, {})
    for head in heads(at.model):
        needed = at.rise(at.ablated(head)).costs(at.tolerance)
        ordered, tried = sorted([*candidates, *own(head)], key=lambda m: (m.n_parameters, len(m.parts))), {}
        for mechanism, after in zip(ordered, _alone(run, head, ordered, at.by.batch), strict=True):
            change = at.rise(after)
            holds = change.holds(at.tolerance, surely=True)
            fits = holds and head not in chosen
            if fits and (not needed or beaten(at, control(at, head, mechanism), after)):
                chosen[head] = mechanism
            tried[mechanism.name] = xr.Dataset({"rise": ("skill", change.mean.numpy()), "holds": ((), holds)})
        row = xr.concat(tried.values(), "mechanism", data_vars="all")
        rows.append(row.assign_coords(mechanism=list(tried), skill=at.by.names))
    names = list(dict.fromkeys(name for row in rows for name in row.mechanism.values.tolist()))
    absent = {"rise": float("nan"), "holds": False}
    return chosen, by_layer([row.reindex(mechanism=names, fill_value=absent) for row in rows], at.model)


def _alone(run: Trials, head: Head, mechanisms: Sequence[Mechanism], batch: Batch) -> Iterator[Score]:
    """With each of some mechanisms in one head, and all other attention as it is."""
    each = iter(mechanisms)
    while some := [*islice(each, N_TOGETHER)]:
        yield from run({}, head, [checked_pattern(mechanism, batch) for mechanism in some])[1]


def reverse_engineer(
    model: HookedModel,
    batch: Batch,
    mechanisms: Sequence[Mechanism],
    *,
    skills: Skills | None = None,
    fallbacks: Sequence[Mechanism] = FALLBACKS,
    learned: bool = True,
    own: Own | None = None,
    by: Grain = "mechanism",
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> xr.DataTree:
    """The whole procedure.

    Args:
        model: Any hooked model.
        batch: The sequences: every other one to choose by, the rest to test on. Means come from the first half.
        mechanisms: What to try; of equally simple ones the earlier is taken.
        skills: For each skill the positions whose answer it alone gives; `all`, every scored position, is added.
        fallbacks: What completes mechanisms that do not say something about every query, and what stands in for
            paths; each must say something about every query.
        learned: Whether to try each head's own mean pattern too, the last by its number of parameters.
        own: More candidates for each head; those that say nothing about some queries get each of the fallbacks.
        by: What a path is: see `remove_paths`.
        tolerance: By how much a loss (nats, or squared error) may rise and still count as held.
        seed: Of the permuted targets.

    Returns:
        A tree: `selection` has `rise` and `holds` of all that was tried, over (layer, head, mechanism). `heads` has,
        over (layer, head), `best` (the name of the mechanism, or "none"), `n_parameters` and `verdict`, and what
        `replace_each` gives for it on the test half. `joint` is `replace_heads` with all of them, `paths` is
        `remove_paths`; it is missing if no path is left.

        Verdicts: `explained` (the head is needed, the mechanism holds the loss and beats its control), `not needed`
        (its ablation costs nothing: nothing to explain, whatever `best` says), `unexplained`.

    Raises:
        InputError: There is no mechanism, two share a name, one gives what could not be attention, a fallback says
            nothing about some query, or a skill is tested in no sequence of one half.
    """
    found = search(
        model,
        batch,
        mechanisms,
        skills=skills,
        fallbacks=fallbacks,
        learned=learned,
        own=own,
        tolerance=tolerance,
        seed=seed,
    )
    table = removed(found.at, found.chosen, remaining(found.chosen, found.best, fallbacks), by, fallbacks)
    parts = found.parts
    return xr.DataTree.from_dict(parts if table is None else {**parts, "paths": table})


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """The results of the first three steps of the procedure.

    `chosen` has the mechanism of each head, without the heads for which none will do. `tried` are the trials on the
    sequences to choose by (`selection`), `best` those of the chosen mechanisms on the test half (`at`).
    """

    chosen: dict[Head, Mechanism]
    tried: xr.Dataset
    best: xr.Dataset
    selection: Bench
    at: Bench

    @property
    def parts(self) -> dict[str, xr.Dataset]:
        """`selection`, `heads` and `joint` of `reverse_engineer`."""
        return {
            "selection": self.tried.assign_attrs(self.selection.attrs),
            "heads": self.best.assign_attrs(self.at.attrs),
            "joint": joint(self.at, self.chosen),
        }


def search(
    model: HookedModel,
    batch: Batch,
    mechanisms: Sequence[Mechanism],
    *,
    skills: Skills | None,
    fallbacks: Sequence[Mechanism],
    learned: bool,
    own: Own | None,
    tolerance: float,
    seed: int,
) -> Found:
    """The first three steps of `reverse_engineer`, with its arguments and errors."""
    check_names(mechanisms)
    for fallback in fallbacks:
        if not speaks(fallback, batch):
            raise InputError(f"fallback {fallback.name} says nothing about some queries; complete it with `otherwise`")
    first, second = halves(batch, skills)
    prepared = partial(bench, model, reference=first[0], tolerance=tolerance, seed=seed)
    selection, at = prepared(*first), prepared(*second)

    def candidates(head: Head) -> list[Mechanism]:
        read_off = [] if own is None else completed(own(model, head, first[0]), fallbacks, first[0])
        return [*read_off, *(fitted(model, head, mechanisms, fallbacks, first[0]) if learned else [])]

    chosen, tried = choose(selection, completed(mechanisms, fallbacks, batch), candidates)
    best = by_layer([_tested(at, head, chosen.get(head)) for head in heads(model)], model)
    return Found(chosen=chosen, tried=tried, best=best, selection=selection, at=at)


def remaining(chosen: Assignment, tested: xr.Dataset, fallbacks: Sequence[Mechanism]) -> list[Head]:
    """Heads that have a path left: all but those that are not needed and do no more than a fallback."""
    idle = {fallback.name for fallback in fallbacks}
    return [
        head
        for head, mechanism in chosen.items()
        if mechanism.name not in idle or tested.verdict.values[head] != "not needed"
    ]


def _tested(at: Bench, head: Head, mechanism: Mechanism | None) -> xr.Dataset:
    """The results of the chosen mechanism of a head on the test half."""
    ablated = at.ablated(head)
    effect = removal(at, ablated)
    result = trial(at, head, identity() if mechanism is None else mechanism, ablated)
    if mechanism is None:  # a head that keeps its attention: nothing was tried
        result = result.where(False).assign(holds=((), False), beats_control=((), False))
    explained = bool(result.holds) and bool(result.beats_control)
    values = {
        "best": NONE if mechanism is None else mechanism.name,
        "n_parameters": 0 if mechanism is None else mechanism.n_parameters,
        "verdict": "not needed" if not effect.needed.any() else "explained" if explained else "unexplained",
    }
    return xr.merge([result, effect]).assign({name: ((), value) for name, value in values.items()})


def read_heads(
    model: HookedModel, task: Task, batch: Batch, *, tolerance: float = TOLERANCE, seed: int = 0
) -> dict[str, xr.Dataset]:
    """The mechanisms of all heads.

    The task says in what slots its sequences come; pairs have other mechanisms. One half of the batch searches, the
    other tests; shares are taken over all of it. A mechanism may raise the loss by `tolerance` nats. The controls draw
    from `seed`.

    Returns:
        `heads`, `joint`, `paths`, `selection`: from `reverse_engineer`; `paths` is empty where no head was replaced.
        `shares`: from `attention_by_mechanism`.
        `scores`: from `head_scores`.
    """
    mechanisms = for_slots(task.slot_size)
    tree = reverse_engineer(model, batch, mechanisms, skills=task.skills(batch), tolerance=tolerance, seed=seed)
    shares = attention_by_mechanism(
        model, batch, _specific_first(task.slot_size), subgroups=task.subgroups(batch) or None, period=task.slot_size
    )
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
