"""Circuit discovery (`analyses.discovery`), by role: the connections that suffice for an effect of corruption."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import mnemoscope as ms
from mnemoscope.core.errors import format_ranges, in_range
from mnemoscope.records import stability
from mnemoscope.records.pairs import (
    edges_by_role,
    feature_notes,
    heads_with_roles,
    metrics,
    name_by_skill,
    pairs_by_skill,
    refuse_undefined,
)
from mnemoscope.records.record import MeasuredRuns, PairOptions, Results, draw_sequences, register_module, xr


@dataclass(frozen=True, kw_only=True)
class Discover(PairOptions):
    """Circuit discovery: which connections suffice for the difference between clean and corrupted sequences."""

    metric: str = "logit_diff"
    """One of logit_diff, log_prob, prob, accuracy, kl."""
    replacement: Literal["patch", "mean", "zero"] = "patch"
    """Values of edges outside a circuit: those of the corrupted sequence, their mean, zero."""
    target: float = 0.9
    """Faithfulness that circuits are to reach, above 0 and at most 1."""
    embeddings: Literal["together", "apart"] = "together"
    """Token and positional embeddings as one writer or as two."""
    n_random: int = 200
    """Random circuits of the same size to compare with."""
    stability: bool = False
    """Find circuits again with other prompts, metrics, replacements, targets and searches; most time goes there.
    `prompts stability` does so with a language model."""
    wordings: bool = False
    """With --stability: other wordings of the same prompts too, of tasks that have some."""
    n_draws: int = 10
    """Draws of prompts for --stability."""
    n: int = 256
    """Sequences of each subgroup; one half finds the circuits, the other judges them."""


LIMITS = (
    "A circuit is a set of edges: what one part adds to the input of another. On clean prompts its edges are live, "
    "while all others carry what stands in their place. Faithfulness is its share of the difference between the whole "
    "model and the empty circuit; above 1, what is left out works against the answer. Circuits are chosen on one half "
    "of the prompts and judged on the other.",
    "Greedy pruning takes edges out, from the logits backwards, while the target holds. Top n takes the fewest edges "
    "of the largest effect that reach it: the effect of taking out one edge, or its estimate from gradients (EAP-IG).",
    "This shows edges that suffice for what the two prompts differ in. What both have in common is left out, and the "
    "model may have other ways. It does not show what the parts compute.",
    "Incompleteness: by how much knocking out edges changes the circuit otherwise than the model. Minimality: the "
    "least that is lost without one of its edges. Random circuits have as many edges, as a meaningless ranking gives "
    "them; p counts those that are as good. In a small graph some are the very circuit, so that p has a floor; and one "
    "that does nothing but holds a bottleneck has little incompleteness, so that this alone does not speak for any.",
)
TRUTH = (
    "Of these models every circuit was run. A circuit is minimal if it reaches the target and none of its subsets "
    "does; shown is the smallest of these, of equals the most faithful. The others are compared with them: edges by "
    "those of the smallest (size ratio), shared edges by edges of either (overlap, with the nearest), and by how much "
    "the best circuit of that size is more faithful (gap)."
)
NO_TRUTH = (
    "Models with more than {} edges have too many circuits to run them all. There is no truth here to "
    "compare the searches with: all of them may have missed smaller circuits."
)

SMALLEST, GREEDY, BY_EFFECT, BY_GRADIENT = "smallest minimal", "greedy", "top n by effect", "top n by EAP-IG"
"""Names of searches."""
MOST = 60
"""Most edges of a table."""
_AXES: dict[str, tuple[str, ...]] = {
    "circuit": ("search", "edge"),
    "curve": ("search", "taken"),
    **dict.fromkeys(("n_edges", "chosen_faithfulness", "faithfulness", "size_ratio", "jaccard", "gap"), ("search",)),
    **dict.fromkeys(("value", "p", "rank"), ("search", "measure")),
    "random": ("search", "measure", "draw"),
    "effect": ("edge",),
    "n_minimal": (),
}
"""Results on a run with their axes; NaN where a search gives none."""


def measure(run: ms.Run, options: Discover) -> dict[str, xr.Dataset]:
    """Circuits of one run by every search, and their quality, a dataset a skill; and the roles of heads."""
    results = {"roles": heads_with_roles(run)}
    for skill, selection, test in _settings(run, options):
        results[f"discovery_{skill}"] = _discover_circuits(selection, test, options, run.spec.seed)
    return results | (stability.measure_stability(run, options) if options.stability else {})


def _settings(run: ms.Run, options: Discover) -> Iterator[tuple[str, ms.analyses.Setting, ms.analyses.Setting]]:
    """Every skill, with the prompts that choose its circuits and those that judge them."""
    batch, model = draw_sequences(run, options, "discover"), run.hooked(options.step)
    (metric,) = metrics("--metric", [options.metric])
    what = {"metric": metric, "replacement": options.replacement, "embeddings": options.embeddings, "refuse": False}
    selection, test = (pairs_by_skill(run, options, half) for half in ms.analyses.split_halves(batch))
    for skill, pairs in selection.items():
        one, other = (ms.analyses.Setting(model=model, pairs=each, **what) for each in (pairs, test[skill]))
        yield skill, one, other


def _discover_circuits(
    selection: ms.analyses.Setting, test: ms.analyses.Setting, options: Discover, seed: int
) -> xr.Dataset:
    """The circuits of every search on some prompts, judged on others."""
    import numpy as np

    from mnemoscope.analyses.discovery.criteria import MEASURES
    from mnemoscope.analyses.discovery.setting import edge_coordinates

    searches, n_edges = _searches(selection), len(selection.edges)
    known = _axis_values(selection, test, searches, options, seed) if np.isfinite(selection.span) else {}
    sizes = {"search": len(searches), "edge": n_edges, "taken": n_edges + 1, "measure": 3, "draw": options.n_random}
    return xr.Dataset(
        {
            name: (axes, known[name] if name in known else np.full([sizes[axis] for axis in axes], np.nan))
            for name, axes in _AXES.items()
        },
        coords={**edge_coordinates(selection.edges), "search": searches, "measure": list(MEASURES)},
        attrs={**test.attrs, "n_selection": len(selection.pairs), "target": options.target, "split": options.split},
    )


def _searches(selection: ms.analyses.Setting) -> list[str]:
    """The searches that can be made."""
    from mnemoscope.analyses.discovery.rankings import estimates_fit
    from mnemoscope.analyses.discovery.searches import MAX_EDGES

    truth = [SMALLEST] if len(selection.edges) <= MAX_EDGES else []
    return [*truth, GREEDY, BY_EFFECT, *([BY_GRADIENT] if estimates_fit(selection) else [])]


def _axis_values(
    selection: ms.analyses.Setting, test: ms.analyses.Setting, searches: Sequence[str], options: Discover, seed: int
) -> dict[str, Any]:
    """The numbers that `_AXES` names, as far as they exist."""
    import numpy as np

    from mnemoscope.analyses.discovery.searches import compare_with_exact, exhaustive_search
    from mnemoscope.analyses.discovery.setting import label_edges

    target, n_edges = options.target, len(selection.edges)
    scores = {BY_EFFECT: ms.analyses.removal_effects(selection)}
    if BY_GRADIENT in searches:
        scores[BY_GRADIENT] = ms.analyses.rank_by_eap_ig(selection)
    found = {GREEDY: ms.analyses.greedy(selection, target=target).circuit.values}
    curves = {GREEDY: np.full(n_edges + 1, np.nan)}
    for search, score in scores.items():
        top = ms.analyses.top_n(selection, score, target=target)
        found[search], curves[search] = top.circuit.values, top.faithfulness.values
    truth = exhaustive_search(selection, target=target) if SMALLEST in searches else None
    if truth is not None:
        found[SMALLEST], curves[SMALLEST] = truth.minimal.values[0], truth.frontier.values
    circuits = label_edges(selection.edges, np.array([found[search] for search in searches]), "search")
    judged = [ms.analyses.against_random(test, circuit, n=options.n_random, seed=seed) for circuit in circuits]
    numbers = {
        "circuit": circuits.values.astype(float),
        "curve": np.array([curves[search] for search in searches]),
        "n_edges": circuits.values.sum(1).astype(float),
        "chosen_faithfulness": selection.faithfulness(circuits.values),
        "faithfulness": test.faithfulness(circuits.values),
        "effect": scores[BY_EFFECT].values,
        **{name: np.array([each[name].values for each in judged]) for name in ("value", "p", "rank", "random")},
    }
    if truth is None:
        return numbers
    compared = compare_with_exact(truth, circuits)
    numbers |= {name: compared[name].values for name in ("size_ratio", "jaccard", "gap")}
    return numbers | {"n_minimal": np.array(float(truth.sizes["alternative"]))}


def tables(measured: MeasuredRuns) -> list[ms.report.Table]:
    """Circuits, their edges, and how they stand among random ones; circuits that were found again."""
    found = name_by_skill("discovery", measured.results)
    how = _describe_search(found, measured.options)
    again = stability.tables(measured) if measured.options.stability else []
    return [*(table(found, how) for table in (circuit_table, member_table, control_table)), *again]


def _describe_search(found: Mapping[str, xr.Dataset], options: Discover) -> str:
    pairs = next(iter(found.values())).attrs["pairs"]
    return f"{options.metric}, {pairs}, {options.replacement} elsewhere, target {options.target:g}"


def circuit_table(found: Mapping[str, xr.Dataset], how: str) -> ms.report.Table:
    """Every search: size and faithfulness of its circuit and, where all circuits were run, its distance from the best.

    `found` gives for every skill the circuits along `seed`; seeds that do not tell clean from corrupted prompts have
    NaN, and the others are counted and named. Cells are mean [range] over seeds. `how` stands in the title.
    """
    columns = {"edges": ("n_edges", ".1f"), "faithfulness": ("faithfulness", ".3f")}
    if all(SMALLEST in each.search for each in found.values()):
        columns |= {"size ratio": ("size_ratio", ".2f"), "overlap": ("jaccard", ".2f"), "gap": ("gap", ".3f")}
        columns |= {"minimal circuits": ("n_minimal", ".1f")}
    rows = []
    for skill, each in found.items():
        for search in each.search.values:
            at = each.sel(search=search)
            numbers = (ms.report.mean_with_range(at[name], form) for name, form in columns.values())
            rows.append([skill, str(search), _seeds(at.n_edges), *numbers])
    title, header = f"circuits, judged on other prompts; {how}", ["skill", "search", "seeds", *columns]
    return ms.report.Table(name="circuits", title=title, header=header, rows=rows, n_text=2)


def _seeds(values: xr.DataArray) -> ms.report.Number:
    """The number of seeds that have a value and, where others have none, their names."""
    known, n = values.seed.values[values.notnull().values].tolist(), values.sizes["seed"]
    named = f" (seed{'' if len(known) == 1 else 's'} {format_ranges(known)})" if known else ""
    return ms.report.Number(f"{len(known)}" if len(known) == n else f"{len(known)} of {n}{named}", mean=len(known))


def member_table(found: Mapping[str, xr.Dataset], how: str) -> ms.report.Table:
    """The number of seeds with the edge in their circuit, of those that have the edge and a circuit, by search.

    Edges are in the order of the model. Those of no circuit are left out; of many, those of the fewest circuits.
    Arguments as for `circuit_table`.
    """
    import numpy as np

    rows = []
    for skill, each in found.items():
        often = each.circuit.sum("seed").max("search").values
        kept = sorted(i for i in np.argsort(-often, kind="stable")[:MOST] if often[i])
        for i in kept:
            inside = each.circuit.isel(edge=i).transpose("search", "seed")
            rows.append([skill, str(each.edge.values[i]), *(f"{int(of.sum())}/{int(of.count())}" for of in inside)])
    title = f"seeds whose circuit has the edge (edges of no circuit are left out); {how}"
    header = ["skill", "edge", *(str(search) for search in next(iter(found.values())).search.values)]
    return ms.report.Table(name="edges", title=title, header=header, rows=rows, n_text=2)


def control_table(found: Mapping[str, xr.Dataset], how: str) -> ms.report.Table:
    """Circuits among random ones of their size, mean [range] over seeds; and the number of seeds where none is better.

    A search that finds the same as an earlier one in every seed is left out. Arguments as for `circuit_table`.
    """
    import numpy as np

    rows = []
    for skill, each in found.items():
        circuits = each.circuit.transpose("search", "seed", "edge").values
        for i, search in enumerate(each.search.values):
            if any(np.array_equal(circuits[i], earlier, equal_nan=True) for earlier in circuits[:i]):
                continue
            for criterion in each.measure.values:
                at = each.sel(search=search, measure=criterion)
                cells = [
                    ms.report.mean_with_range(values, ".3f") for values in (at.value, at.random.mean("draw"), at.p)
                ]
                best = f"{int((at['rank'] == 1).sum())}/{int(at['rank'].count())}"
                rows.append([skill, str(search), str(criterion), *cells, best])
    n_random = next(iter(found.values())).sizes["draw"]
    title = f"circuits among {n_random} random ones of their size, on other prompts; {how}"
    header = ("skill", "search", "measure", "circuit", "random circuits", "p", "none better: seeds")
    return ms.report.Table(name="random", title=title, header=header, rows=rows, n_text=3)


def figures(measured: MeasuredRuns) -> list[tuple[str, Any]]:
    """The circuit of every skill by role, where a seed has one, and faithfulness by number of edges."""
    from mnemoscope.interventions.graph import model_edges

    results, options = measured.results, measured.options
    chosen = model_edges(measured.runs[0].hooked(options.step), embeddings=options.embeddings)
    found = name_by_skill("discovery", results)
    how, several = _describe_search(found, options), next(iter(found.values())).sizes["seed"] > 1
    pictures = []
    for skill, each in found.items():
        picture = circuit_by_role(chosen, each, results["roles"].component)
        if picture is not None:
            pictures.append((f"{skill}: {each.search.values[0]} circuit, {picture[0]}; {how}.", picture[1]))
    over = ", mean over seeds" if several else ""
    caption = f"Faithfulness by number of edges, where they were chosen{over}; {how}."
    again = stability.figures(measured) if options.stability else []
    return [*pictures, (caption, curve_figure(found)), *again]


def circuit_by_role(chosen: Sequence[ms.Edge], found: xr.Dataset, component: xr.DataArray) -> tuple[str, Any] | None:
    """The circuit of the first search, and in words over which seeds; none where no seed has one.

    An edge is as wide as the share of seeds whose circuit has it; for a single seed, as the loss without it. `chosen`
    holds the model's edges by head number, `found` is by role; `component` over (seed, role) translates.
    """
    from mnemoscope.report.edges import role_circuit

    inside = found.circuit.isel(search=0, drop=True)
    several = inside.sizes["seed"] > 1
    picture = role_circuit(chosen, (inside if several else found.effect).where(inside.mean("seed") > 0), component)
    if picture is None:
        return None
    title = "share of seeds" if several else "faithfulness lost without it"
    return picture[0], picture[1].update_coloraxes(colorbar_title_text=title)


def curve_figure(found: Mapping[str, xr.Dataset]) -> Any:
    """Faithfulness by number of edges, one panel per skill: of the best circuits and of rankings, mean over seeds."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    curves = {
        SMALLEST: ("best of all circuits", "#8a93a3", "dot"),
        BY_EFFECT: (BY_EFFECT, ms.report.PALETTE[0], "solid"),
        BY_GRADIENT: (BY_GRADIENT, ms.report.PALETTE[1], "dash"),
    }
    figure = make_subplots(1, len(found), subplot_titles=list(found), shared_yaxes=True)
    for column, each in enumerate(found.values(), 1):
        for search, (name, colour, dash) in curves.items():
            if search not in each.search:
                continue
            line = go.Scatter(
                x=list(range(each.sizes["taken"])),
                y=each.curve.sel(search=search).mean("seed").values,
                mode="lines+markers",
                marker={"size": 5, "color": colour},
                line={"color": colour, "width": 1.5, "dash": dash},
                name=name,
                legendgroup=name,
                showlegend=column == 1,
                hovertemplate=f"{name}, %{{x}} edges: %{{y:.3f}}<extra></extra>",
            )
            figure.add_trace(line, 1, column)
        style = {"line": {"dash": "dash", "color": "#c3c9d3", "width": 1}, "row": 1, "col": column}
        figure.add_hline(y=each.attrs["target"], **style)
    figure.update_xaxes(title="edges")
    figure.update_yaxes(title="faithfulness", row=1, col=1)
    return figure.update_layout(**ms.report.LAYOUT, height=360)


def finding(measured: MeasuredRuns) -> str:
    """The smallest circuit of every skill that reaches the target faithfulness on prompts that did not choose it."""
    found, target = [], measured.options.target
    for skill, result in name_by_skill("discovery", measured.results).items():
        size = result.sizes["edge"]
        held = result.faithfulness.mean("seed") >= target
        sizes = result.n_edges.mean("seed").where(held)
        if not bool(sizes.notnull().any()):
            found.append(f"for {skill} no search found one")
            continue
        at = int(sizes.argmin("search"))
        edges = ms.report.mean_with_range(result.n_edges.isel(search=at), ".0f")
        kept = ms.report.mean_with_range(result.faithfulness.isel(search=at), ".2f")
        seeds = _seeds(result.n_edges.isel(search=at))
        which = "" if seeds.isdecimal() else f"; seeds: {seeds}"
        found.append(f"for {skill} {edges} of {size} edges ({result.search.values[at]}; faithfulness {kept}{which})")
    if not found:
        return ""
    again = f" {stability.finding(measured)}" if measured.options.stability else ""
    return f"Circuits that keep {target:g} of the metric on other prompts: {'; '.join(found)}.{again}"


def notes(measured: MeasuredRuns) -> Sequence[str]:
    """A note on the truth to compare the searches with, or on its absence."""
    from mnemoscope.analyses.discovery.searches import MAX_EDGES

    found = name_by_skill("discovery", measured.results)
    truth = TRUTH if SMALLEST in next(iter(found.values())).search else NO_TRUTH.format(MAX_EDGES)
    again = stability.notes(measured) if measured.options.stability else ()
    return (truth, *feature_notes(found), *again)


def check(options: Discover) -> None:
    """Refuse numbers out of range and unknown metrics."""
    in_range("--n-random", options.n_random, 1, float("inf"))
    in_range("--target", options.target, 0.01, 1)
    in_range("--n-draws", options.n_draws, 2, float("inf"))
    if options.wordings and not options.stability:
        raise ms.InputError("--wordings is about --stability; add that, or leave --wordings out")
    metrics("--metric", [options.metric])


def finish(label: str, measured: MeasuredRuns) -> Results:
    """Edges by role, and the overlap of seeds that were found again, unless no seed has a circuit."""
    results = edges_by_role(measured.results)
    sizes = {skill: result.n_edges for skill, result in name_by_skill("discovery", results).items()}
    refuse_undefined(label, sizes, missing="no circuit to be found", option="--metric")
    return {**results, **stability.overlaps_of_seeds(replace(measured, results=results))}


register_module(__name__, Discover, least_n=4)
