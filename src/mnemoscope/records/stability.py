"""Circuits that stay (`analyses.circuit_stability`), as `discover --stability` measures and shows them, by role."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import mnemoscope as ms
from mnemoscope.core.errors import InputError
from mnemoscope.records.pairs import metrics, name_by_skill, pairs_by_skill
from mnemoscope.records.record import Display, MeasuredRuns, xr

PART = "stability"
"""Results are called `stability_<skill>`."""
SEEDS = "seeds"
"""Overlaps between seeds are called `seeds_<skill>`."""
LIMITS = (
    "Would the circuit be the same? The usual search finds one on each of several draws of prompts. Then one choice is "
    "changed at a time, and at last all at once: a random combination for each draw. Overlap is shared edges by edges "
    "of either, between draws, and for a single change with the usual circuit of the draw. Chance is that of random "
    "connected circuits of the same sizes, p the share of these that overlap as much. For a single change the draws "
    "are no replicates: p is that of one pair, and cannot be small where the graph has few circuits of that size.",
    "Other corruptions are shown as contrasts: they ask another question, so that another circuit is no instability, "
    "and stand outside 'all at once'. Skills are analysed apart, for the same reason. What other edges carry, a mean "
    "or zero, changes the question too, and takes part.",
    "The core holds the edges of nearly all circuits. This does not show that an edge is needed: searches share "
    "biases.",
)
WORDINGS = {
    True: "Wordings change both sides of a pair alike: question and answer stay. They take part in 'all at once'.",
    False: "There are other wordings of these prompts, which --wordings tries.",
    None: "There is no other wording of these prompts.",
}
"""Notes by whether wordings were tried; None: there are none."""
MOST = 60
"""Most edges of a table or figure."""
_BAND = (0.025, 0.975)
_SEEDS = "another seed"


def measure_stability(run: ms.Run, options: Any) -> dict[str, xr.Dataset]:
    """Circuits of one run under other prompts and choices, a dataset a skill, as numbers."""
    from mnemoscope.analyses.discovery.stability import METRICS, REPLACEMENTS, TARGETS

    model, (metric,) = run.hooked(options.step), metrics("--metric", [options.metric])
    batches = list(_batches(run, options))
    ragged, results = any(batch.ragged for batch in batches), {}
    for skill, pairs in _draws_by_skill(run, options, batches).items():
        found = ms.analyses.circuit_stability(
            model,
            pairs,
            wordings=_wordings(run, options, pairs),
            contrasts=_contrasts(run, options, skill, batches),
            metrics=_usual_first(metric, METRICS),
            replacements=[
                name for name in _usual_first(options.replacement, REPLACEMENTS) if not ragged or name != "mean"
            ],
            targets=_usual_first(options.target, TARGETS),
            embeddings=options.embeddings,
            n_random=options.n_random,
            refuse=False,
            seed=run.spec.seed,
        )
        results[f"{PART}_{skill}"] = _as_numbers(found)
    return results


def _as_numbers(found: xr.Dataset) -> xr.Dataset:
    numbers = {name: each.astype(float) for name, each in found.data_vars.items() if each.dtype.kind in "bif"}
    return found.assign(numbers)


def display_stability(found: Mapping[str, xr.Dataset], *, searches: Sequence[str], wordings: bool | None) -> Display:
    """The display of `ms.analyses.circuit_stability` on one model that is no run, by the name of its prompts.

    `searches` are those that took part, the usual one first. `wordings` says whether any were tried; None: there are
    none.
    """
    results = {f"{PART}_{name}": _as_numbers(each).expand_dims(seed=[0]) for name, each in found.items()}
    measured = MeasuredRuns(results=results, options=None, runs=())
    others = f", then {', '.join(searches[1:])}" if searches[1:] else ""
    return Display(
        finding=finding(measured),
        tables=tables(measured),
        figures=figures(measured),
        notes=(LIMITS[0], f"Searches: {searches[0]}, the usual one{others}.", LIMITS[2], WORDINGS[wordings]),
    )


def _usual_first(usual: Any, others: Sequence[Any]) -> list[Any]:
    return [usual, *(other for other in others if other != usual)]


def _batches(run: ms.Run, options: Any) -> Iterator[ms.Batch]:
    """Fresh sequences for every draw, as many as choose the circuits of `discover`."""
    for draw in range(options.n_draws):
        stream = ms.generator(run.spec.seed, PART, draw, options.split)
        yield run.spec.task.monitor(max(2, options.n // 2), split=options.split, generator=stream)


def _draws_by_skill(run: ms.Run, options: Any, batches: Sequence[ms.Batch]) -> dict[str, list[ms.PromptPairs]]:
    each = [pairs_by_skill(run, options, batch) for batch in batches]
    return {skill: [pairs[skill] for pairs in each] for skill in each[0]}


def _wordings(run: ms.Run, options: Any, draws: Sequence[ms.PromptPairs]) -> dict[str, list[ms.PromptPairs]]:
    """The pairs in every other wording of the task; none unless they are wanted."""
    task = run.spec.task
    names = getattr(task, "wordings", ())
    if options.wordings and not names:
        raise InputError(f"--wordings: the task {task.name} has no other wording of its prompts; leave it out")
    seed = run.spec.seed
    wanted = names if options.wordings else ()
    return {name: [pairs.reworded(task, name, seed=seed + i) for i, pairs in enumerate(draws)] for name in wanted}


def notes(measured: MeasuredRuns) -> Sequence[str]:
    """The limits, and whether there are other wordings and they were tried."""
    tasks = [run.spec.task for run in measured.runs]
    some = any(getattr(task, "wordings", ()) for task in tasks)
    return (*LIMITS, *([WORDINGS[measured.options.wordings if some else None]] if tasks else []))


def _contrasts(run: ms.Run, options: Any, skill: str, batches: Sequence[ms.Batch]) -> dict[str, list[ms.PromptPairs]]:
    """Pairs by the other corruptions of the task, without wordings that are tried; left out where a skill has none."""
    skills, found = ((skill,) if run.spec.task.skills(batches[0]) else ()), {}
    for kind in run.spec.task.corruptions:
        tried = getattr(run.spec.task, "wordings", ()) if options.wordings else ()
        if kind == (options.corruption or run.spec.task.corruptions[0]) or kind in tried:
            continue
        try:
            found[kind] = _draws_by_skill(run, replace(options, corruption=kind, skills=skills), batches)[skill]
        except InputError:
            continue
    return found


def seed_overlap(measured: MeasuredRuns, skill: str, found: xr.Dataset) -> xr.Dataset | None:
    """The overlap of the usual circuits of seeds on their first draw; none for a single seed.

    It is taken from the results where it is of as many seeds: those that are selected are some of these.
    """
    if found.sizes["seed"] < 2:
        return None
    circuits = found.circuit.isel(change=0, draw=0, drop=True) == 1
    kept = measured.results.get(f"{SEEDS}_{skill}")
    if kept is not None and int(kept.n_found) == int(circuits.any("edge").sum()):
        return kept
    run, options = measured.runs[0], replace(measured.options, n_draws=1)
    (pairs,) = _draws_by_skill(run, options, list(_batches(run, options)))[skill]
    about = {"replacement": options.replacement, "embeddings": options.embeddings}
    setting = ms.analyses.Setting(model=run.hooked(options.step), pairs=pairs, **about)
    return ms.analyses.seed_stability(setting, circuits, n_random=options.n_random)


def overlaps_of_seeds(measured: MeasuredRuns) -> dict[str, xr.Dataset]:
    """The overlap between seeds of every skill, as `seeds_<skill>`; none for a single seed."""
    each = {
        skill: seed_overlap(measured, skill, found) for skill, found in name_by_skill(PART, measured.results).items()
    }
    return {f"{SEEDS}_{skill}": between for skill, between in each.items() if between is not None}


def tables(measured: MeasuredRuns) -> list[ms.report.Table]:
    """The overlap of circuits after each change beside chance; edges, with their share beside chance."""
    found = name_by_skill(PART, measured.results)
    first = next(iter(found.values()))
    how = f"{first.sizes['draw']} draws of prompts; {first.attrs['metric']}, {first.attrs['pairs']}"
    seeds = {skill: seed_overlap(measured, skill, each) for skill, each in found.items()}
    return [overlap_table(found, seeds, how), core_table(found, how)]


def overlap_table(found: Mapping[str, xr.Dataset], seeds: Mapping[str, xr.Dataset | None], how: str) -> ms.report.Table:
    """A row for every change: circuits found and their size, overlap beside chance, p, and seeds above chance.

    Cells are mean [range] over seeds. `seeds` has the overlap between seeds of each skill, if there are several.
    """
    from mnemoscope.analyses.discovery.stability import ALPHA

    rows = []
    for skill, each in found.items():
        for change in each.change.values:
            at = each.sel(change=change)
            size = at.n_edges.where(at.n_edges > 0).mean("draw")
            columns = ((size, ".1f"), (at.jaccard, ".2f"), (at.by_chance, ".2f"), (at.p_jaccard, ".3f"))
            numbers = [ms.report.mean_with_range(values, form) for values, form in columns]
            above = f"{int((at.p_jaccard <= ALPHA).sum())}/{int(at.p_jaccard.count())}"
            share = ms.report.mean_with_range(at.n_found / at.sizes["draw"], ".2f")
            rows.append([skill, str(change), share, *numbers, above])
        between = seeds[skill]
        if between is not None:
            names = {"jaccard": ".2f", "by_chance": ".2f", "p_jaccard": ".3f"}
            numbers = [ms.report.single_number(float(between[name]), form) for name, form in names.items()]
            share = ms.report.single_number(float(between.n_found) / each.sizes["seed"], ".2f")
            rows.append([skill, _SEEDS, share, "", *numbers, ""])
    above = _count(found, f"p ≤ {ALPHA:g}")
    header = ("skill", "changed", "found", "edges", "overlap", "by chance", "p", above)
    return ms.report.Table(name="overlap", title=f"circuits found again; {how}", header=header, rows=rows, n_text=2)


def core_table(found: Mapping[str, xr.Dataset], how: str) -> ms.report.Table:
    """Edges with the share of circuits that have them, beside chance; edges of few circuits are left out.

    Cells are mean [range] over seeds; the last columns count seeds.
    """
    from mnemoscope.analyses.discovery.stability import ALL, ALPHA, PROMPTS

    rows = []
    for skill, each in found.items():
        usual, at_once = each.sel(change=PROMPTS), each.sel(change=ALL)
        for i in _most_shared(each):
            cells = [
                ms.report.mean_with_range(values.isel(edge=i), ".2f")
                for values in (usual.share, usual.expected, at_once.share, at_once.expected)
            ]
            beyond, core = ((at_once.q <= ALPHA).isel(edge=i), at_once.core.isel(edge=i) == 1)
            n = int(at_once.share.isel(edge=i).count())
            rows.append([skill, str(each.edge.values[i]), *cells, f"{int(beyond.sum())}/{n}", f"{int(core.sum())}/{n}"])
    counts = (_count(found, f"q ≤ {ALPHA:g}"), _count(found, "core"))
    header = ("skill", "edge", PROMPTS, "by chance", ALL, "by chance, all", *counts)
    title = f"share of circuits that have the edge{_cut_words(found)}; {how}"
    return ms.report.Table(name="core", title=title, header=header, rows=rows, n_text=2)


def _count(found: Mapping[str, xr.Dataset], what: str) -> str:
    """The header of a column that counts seeds; of a single one it counts itself."""
    return f"{what}: seeds" if any(each.sizes["seed"] > 1 for each in found.values()) else what


def _cut_words(found: Mapping[str, xr.Dataset]) -> str:
    """The number of edges that are left out of the table, if any are in some circuit."""
    left = sum(int((_often(each) > 0).sum()) - len(_most_shared(each)) for each in found.values())
    return f", without {left:,} more" if left else ""


def _often(each: xr.Dataset) -> Any:
    """The share of circuits with each edge, the larger one of the usual choices and of all at once."""
    from mnemoscope.analyses.discovery.stability import ALL, PROMPTS

    return each.share.sel(change=[PROMPTS, ALL]).mean("seed").max("change").fillna(0).values


def _most_shared(each: xr.Dataset) -> list[int]:
    """Numbers of the edges in most circuits of the usual choices and of all at once, in the order of the model."""
    import numpy as np

    often = _often(each)
    return sorted(int(i) for i in np.argsort(-often, kind="stable")[:MOST] if often[i])


def figures(measured: MeasuredRuns) -> list[tuple[str, Any]]:
    """For every skill: overlap after each change, and shares of edges, both with what chance gives."""
    pictures = []
    for skill, each in name_by_skill(PART, measured.results).items():
        dots = "dots are seeds, bars their mean, grey" if each.sizes["seed"] > 1 else "grey"
        if not bool(each.jaccard.notnull().any()):
            continue
        pictures.append(
            (f"{skill}: overlap of circuits after each change; {dots} 95 % of random ones.", overlap_figure(each))
        )
        pictures.append(
            (f"{skill}: share of circuits that have an edge; {dots} what chance gives.", share_figure(each))
        )
    return pictures


def overlap_figure(found: xr.Dataset) -> Any:
    """A bar for every change that can be compared, a dot for every seed, and 95 % of random circuits in grey."""
    import plotly.graph_objects as go

    found = found.sel(change=found.jaccard.notnull().any("seed"))
    labels = [str(change) for change in found.change.values]
    bands = found.random.quantile(_BAND, ["seed", "null"]).transpose("quantile", "change").values
    figure = go.Figure(_bands(labels, *bands, name="random circuits"))
    cells = list(found.jaccard.transpose("change", "seed"))
    look = {"name": "circuits", "colour": ms.report.PALETTE[0], "width": 0.5, "legend": True}
    figure.add_traces(ms.report.bars_with_dots(cells, list(range(len(labels))), **look, labels=labels))
    return _rows(figure, labels, "overlap")


def share_figure(found: xr.Dataset) -> Any:
    """Two bars for every edge, of the usual choices and of all at once, a dot for every seed, and chance in grey."""
    import plotly.graph_objects as go

    from mnemoscope.analyses.discovery.stability import ALL, PROMPTS

    shown = found.isel(edge=_most_shared(found))
    labels = [str(edge) for edge in shown.edge.values]
    expected = shown.expected.sel(change=[PROMPTS, ALL])
    ends = (values.values for values in (expected.min(["seed", "change"]), expected.max(["seed", "change"])))
    figure = go.Figure(_bands(labels, *ends, name="by chance"))
    for side, change, colour in zip((-1, 1), (PROMPTS, ALL), ms.report.PALETTE[:2], strict=True):
        cells = list(shown.share.sel(change=change).transpose("edge", "seed"))
        places = [i + 0.2 * side for i in range(len(labels))]
        look = {"name": change, "colour": colour, "width": 0.36, "legend": True}
        figure.add_traces(ms.report.bars_with_dots(cells, places, **look, labels=labels))
    return _rows(figure, labels, "share of circuits")


def _bands(labels: Sequence[str], low: Any, high: Any, *, name: str) -> Any:
    """Grey bars between two ends, one for every row."""
    import plotly.graph_objects as go

    hover = [f"{label}, {name}: {a:.2f} to {b:.2f}" for label, a, b in zip(labels, low, high, strict=True)]
    return go.Bar(
        x=high - low + 0.004,
        base=low - 0.002,
        y=list(range(len(labels))),
        orientation="h",
        width=0.9,
        marker_color="#e3e7ee",
        name=name,
        text=hover,
        textposition="none",
        hovertemplate="%{text}<extra></extra>",
    )


def _rows(figure: Any, labels: Sequence[str], title: str) -> Any:
    """A row for every label, the first at the top."""
    places = list(range(len(labels)))
    figure.update_yaxes(tickvals=places, ticktext=list(labels), range=[len(labels) - 0.5, -0.5], automargin=True)
    figure.update_xaxes(title=title, range=[-0.02, 1.02])
    return figure.update_layout(**ms.report.LAYOUT, height=150 + 26 * len(labels), barmode="overlay")


def finding(measured: MeasuredRuns) -> str:
    """For every skill: overlap with other prompts, with all choices changed and between seeds, and the core."""
    from mnemoscope.analyses.discovery.stability import ALL, PROMPTS

    said = []
    for skill, each in name_by_skill(PART, measured.results).items():
        if not bool(each.jaccard.sel(change=[PROMPTS, ALL]).notnull().any()):
            said.append(f"For {skill} too few circuits were found to compare them.")
            continue
        words = {PROMPTS: PROMPTS, ALL: "all choices changed at once"}
        parts = [f"{_overlap_words(each.sel(change=change))} with {named}" for change, named in words.items()]
        between = seed_overlap(measured, skill, each)
        if between is not None and between.n_found > 1:
            at = between[["jaccard", "by_chance", "p_jaccard"]].expand_dims(seed=1)
            parts.append(f"{_overlap_words(at)} between seeds")
        said.append(f"Circuits for {skill} overlap {'; '.join(parts)}. {_core_words(each)}{_mover_words(each)}")
    return " ".join(said)


def _overlap_words(at: xr.Dataset) -> str:
    """The overlap, that of random circuits, and whether it is above chance."""
    from mnemoscope.analyses.discovery.stability import ALPHA

    n, above = int(at.p_jaccard.count()), int((at.p_jaccard <= ALPHA).sum())
    if not n:
        return "nowhere, since too few were found,"
    of_seeds = f" in {above or 'any'} of {n} seeds" if n > 1 else f", p {float(at.p_jaccard.mean()):.3f}"
    verdict = f"{'above' if above else 'not above'} chance{of_seeds}"
    mean = ms.report.mean_with_range(at.jaccard, ".2f")
    return f"{mean} (random ones {float(at.by_chance.mean()):.2f}: {verdict})"


def _core_words(each: xr.Dataset) -> str:
    """The edges of the core of all at once in most seeds."""
    from mnemoscope.analyses.discovery.stability import ALL

    at_once = each.sel(change=ALL)
    known = at_once.share.notnull()
    inside = ((at_once.core == 1) & known).sum("seed") > known.sum("seed") / 2
    names = [str(name) for name in each.edge.values[inside.values]]
    least = f"{each.attrs['core']:.0%}".replace("%", " %")
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} others" if len(names) > 6 else "")
    return f"In {least} of circuits stay {shown or 'no edges'}."


def _mover_words(each: xr.Dataset) -> str:
    """The single choice after which the overlap is least, if it is below one."""
    chosen = each.jaccard.isel(change=slice(1, -1)).mean("seed")
    chosen = chosen.sel(change=[f != "contrast" for f in each.factor.values[1:-1]]).dropna("change")
    if not chosen.size or float(chosen.min()) == 1:
        return ""
    most = chosen.isel(change=int(chosen.argmin("change")))
    return f" The choice that moves them most is {most.change.item()} ({float(most):.2f})."
