"""`mnemoscope discover`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import mnemoscope as ms
from mnemoscope.cli.analysis import Results, Shown, analysis_command, drawn, xr
from mnemoscope.cli.options import OfPairs
from mnemoscope.cli.pairs import (
    by_skill,
    edges_by_role,
    heads_with_roles,
    metrics,
    pairs_by_skill,
    refuse_unknown,
)
from mnemoscope.core.errors import in_range


@dataclass(frozen=True, kw_only=True)
class Discover(OfPairs):
    """Circuit discovery: which connections suffice for the difference between clean and corrupted sequences."""

    metric: str = "logit_diff"
    """One of logit_diff, log_prob, prob, accuracy, kl."""
    replacement: Literal["patch", "mean", "zero"] = "patch"
    """What edges outside a circuit carry: what was written on the corrupted sequence, its mean, nothing."""
    target: float = 0.9
    """Faithfulness that circuits are to reach, above 0 and at most 1."""
    embeddings: Literal["together", "apart"] = "together"
    """Token and positional embeddings as one writer or as two."""
    n_random: int = 200
    """Random circuits of the same size to compare with."""
    n: int = 256
    """Sequences of each subgroup; one half finds the circuits, the other judges them."""


NOTES = (
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

_AXES: dict[str, tuple[str, ...]] = {
    "circuit": ("search", "edge"),
    "curve": ("search", "taken"),
    **dict.fromkeys(("n_edges", "chosen_faithfulness", "faithfulness", "size_ratio", "jaccard", "gap"), ("search",)),
    **dict.fromkeys(("value", "p", "rank"), ("search", "measure")),
    "random": ("search", "measure", "draw"),
    "effect": ("edge",),
    "n_minimal": (),
}
"""What is known of a run; NaN where there is nothing to be known."""


def discover_run(run: ms.Run, options: Discover) -> dict[str, xr.Dataset]:
    """Circuits of one run by every search, and how good they are, a dataset a skill; and the roles of heads."""
    results = {"roles": heads_with_roles(run)}
    for skill, selection, test in _settings(run, options):
        results[f"discovery_{skill}"] = _discovered(selection, test, options, run.spec.seed)
    return results


def _settings(run: ms.Run, options: Discover) -> Iterator[tuple[str, ms.analyses.Setting, ms.analyses.Setting]]:
    """Every skill, with what its circuits are chosen on and what they are judged on."""
    batch, model = drawn(run, options, "discover"), run.hooked(options.step)
    (metric,) = metrics("--metric", [options.metric])
    what = {"metric": metric, "replacement": options.replacement, "embeddings": options.embeddings, "refuse": False}
    selection, test = (pairs_by_skill(run, options, half) for half in ms.analyses.split_halves(batch))
    for skill, pairs in selection.items():
        one, other = (ms.analyses.Setting(model=model, pairs=each, **what) for each in (pairs, test[skill]))
        yield skill, one, other


def _discovered(selection: ms.analyses.Setting, test: ms.analyses.Setting, options: Discover, seed: int) -> xr.Dataset:
    """The circuits of every search on some prompts, judged on others."""
    import numpy as np

    from mnemoscope.analyses.discovery.criteria import MEASURES
    from mnemoscope.analyses.discovery.setting import coordinates

    searches, n_edges = _searches(selection), len(selection.edges)
    figures = _figures(selection, test, searches, options, seed) if np.isfinite(selection.span) else {}
    sizes = {"search": len(searches), "edge": n_edges, "taken": n_edges + 1, "measure": 3, "draw": options.n_random}
    return xr.Dataset(
        {
            name: (axes, figures[name] if name in figures else np.full([sizes[axis] for axis in axes], np.nan))
            for name, axes in _AXES.items()
        },
        coords={**coordinates(selection.edges), "search": searches, "measure": list(MEASURES)},
        attrs={**test.attrs, "n_selection": len(selection.pairs), "target": options.target, "split": options.split},
    )


def _searches(selection: ms.analyses.Setting) -> list[str]:
    """The searches that can be made: estimates are of patches, and accuracy has no gradient."""
    from mnemoscope.analyses.discovery.searches import MAX_EDGES
    from mnemoscope.core.metrics import ACCURACY
    from mnemoscope.viz.discovery import BY_EFFECT, BY_GRADIENT, GREEDY, SMALLEST

    truth = [SMALLEST] if len(selection.edges) <= MAX_EDGES else []
    estimated = selection.replacement == "patch" and selection.metric != ACCURACY
    return [*truth, GREEDY, BY_EFFECT, *([BY_GRADIENT] if estimated else [])]


def _figures(
    selection: ms.analyses.Setting, test: ms.analyses.Setting, searches: Sequence[str], options: Discover, seed: int
) -> dict[str, Any]:
    """The figures that `_AXES` names, as far as there is anything."""
    import numpy as np

    from mnemoscope.analyses.discovery import compared_with_exact, exact
    from mnemoscope.analyses.discovery.setting import labelled
    from mnemoscope.viz.discovery import BY_EFFECT, BY_GRADIENT, GREEDY, SMALLEST

    target, n_edges = options.target, len(selection.edges)
    effect = 1 - selection.faithfulness(~np.eye(n_edges, dtype=bool))
    scores = {BY_EFFECT: labelled(selection.edges, effect)}
    if BY_GRADIENT in searches:
        scores[BY_GRADIENT] = _estimated(selection)
    found = {GREEDY: ms.analyses.greedy(selection, target=target).circuit.values}
    curves = {GREEDY: np.full(n_edges + 1, np.nan)}
    for search, score in scores.items():
        top = ms.analyses.top_n(selection, score, target=target)
        found[search], curves[search] = top.circuit.values, top.faithfulness.values
    truth = exact(selection, target=target) if SMALLEST in searches else None
    if truth is not None:
        found[SMALLEST], curves[SMALLEST] = truth.minimal.values[0], truth.frontier.values
    circuits = labelled(selection.edges, np.array([found[search] for search in searches]), "search")
    judged = [ms.analyses.against_random(test, circuit, n=options.n_random, seed=seed) for circuit in circuits]
    figures = {
        "circuit": circuits.values.astype(float),
        "curve": np.array([curves[search] for search in searches]),
        "n_edges": circuits.values.sum(1).astype(float),
        "chosen_faithfulness": selection.faithfulness(circuits.values),
        "faithfulness": test.faithfulness(circuits.values),
        "effect": effect,
        **{name: np.array([each[name].values for each in judged]) for name in ("value", "p", "rank", "random")},
    }
    if truth is None:
        return figures
    compared = compared_with_exact(truth, circuits)
    figures |= {name: compared[name].values for name in ("size_ratio", "jaccard", "gap")}
    return figures | {"n_minimal": np.array(float(truth.sizes["alternative"]))}


def _estimated(setting: ms.analyses.Setting) -> xr.DataArray:
    """The addition of each edge to the metric, by EAP-IG."""
    from mnemoscope.analyses.patching.edge_attribution import integrate_edges

    found = integrate_edges(
        setting.model,
        setting.pairs,
        embeddings=setting.embeddings,
        metrics=(setting.metric,),
        directions=("noising",),
    )
    return (found.clean - found.value).mean("prompt").squeeze(drop=True)


def _shown(results: Results, options: Discover, runs: Sequence[ms.Run]) -> Shown:
    from mnemoscope.analyses.discovery.searches import MAX_EDGES
    from mnemoscope.interventions.edges.graph import model_edges
    from mnemoscope.viz.discovery import (
        SMALLEST,
        circuit_by_role,
        circuit_table,
        control_table,
        curve_figure,
        member_table,
    )
    from mnemoscope.viz.findings import circuits

    chosen = model_edges(runs[0].hooked(options.step), embeddings=options.embeddings)
    found = by_skill("discovery", results)
    first = next(iter(found.values()))
    how = f"{options.metric}, {first.attrs['pairs']}, {options.replacement} elsewhere, target {options.target:g}"
    tables = [table(found, how) for table in (circuit_table, member_table, control_table)]
    figures = []
    for skill, each in found.items():
        drawn = circuit_by_role(chosen, each, results["roles"].component)
        if drawn is not None:
            figures.append((f"{skill}: {each.search.values[0]} circuit, {drawn[0]}; {how}.", drawn[1]))
    over = ", mean over seeds" if first.sizes["seed"] > 1 else ""
    figures.append((f"Faithfulness by number of edges, where they were chosen{over}; {how}.", curve_figure(found)))
    truth = TRUTH if SMALLEST in first.search else NO_TRUTH.format(MAX_EDGES)
    return Shown(finding=circuits(found), tables=tables, figures=figures, notes=[*NOTES, truth])


def _check(options: Discover) -> None:
    in_range("--n-random", options.n_random, 1, float("inf"))
    in_range("--target", options.target, 0.01, 1)
    metrics("--metric", [options.metric])


def _finish(label: str, runs: Sequence[ms.Run], found: Results, options: Discover) -> Results:
    results = edges_by_role(found)
    sizes = {skill: result.n_edges for skill, result in by_skill("discovery", results).items()}
    refuse_unknown(label, sizes, missing="no circuit to be found", option="--metric")
    return results


analysis_command("discover", Discover, measure=discover_run, show=_shown, check=_check, finish=_finish, least_n=4)
