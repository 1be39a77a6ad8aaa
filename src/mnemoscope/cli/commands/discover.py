"""`mnemoscope discover`."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import xarray as xr

from mnemoscope.analyses.ablation.head_roles import split_halves
from mnemoscope.analyses.discovery import Setting, against_random, compared_with_exact, exact, greedy, top_n
from mnemoscope.analyses.discovery.controls import MEASURES
from mnemoscope.analyses.discovery.exact import MAX_EDGES
from mnemoscope.analyses.discovery.setting import coordinates, labelled
from mnemoscope.analyses.dynamics.trajectories import last_roles
from mnemoscope.analyses.patching.edge_attribution import integrate_edges
from mnemoscope.analyses.patching.edge_roles import edges_of_seeds
from mnemoscope.cli.analysis import Results, Shown, Table, corruption, each_configuration, publish
from mnemoscope.cli.analysis_options import Discover
from mnemoscope.core.edge import Edge
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.metrics import ACCURACY, METRICS
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.seeding import generator
from mnemoscope.interventions.edges.graph import edges
from mnemoscope.models.run import Run
from mnemoscope.viz.discovery import (
    BY_EFFECT,
    BY_GRADIENT,
    CONTROL_HEADER,
    GREEDY,
    SMALLEST,
    circuit_by_role,
    circuit_header,
    circuit_rows,
    control_rows,
    curve_figure,
    member_header,
    member_rows,
)

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
    f"Models with more than {MAX_EDGES} edges have too many circuits to run them all. There is no truth here to "
    "compare the searches with: all of them may have missed smaller circuits."
)

_METRICS = {metric.name: metric for metric in METRICS}
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


def run(options: Discover) -> None:
    """Print the circuits of each skill, which edges they have and how good they are; write arrays and figures."""
    in_range("--n", options.n, 4, float("inf"))
    in_range("--n-random", options.n_random, 1, float("inf"))
    in_range("--target", options.target, 0.01, 1)
    one_of("--metric", options.metric, _METRICS)
    analyse = partial(discover_run, options=options)
    for label, runs, found in each_configuration(options.runs, analyse, jobs=options.jobs):
        component = found["roles"].component
        results = {
            name: edges_of_seeds(result, component) if "edge" in result.dims else result
            for name, result in found.items()
        }
        if all(bool(result.n_edges.isnull().all()) for result in _by_skill(results).values()):
            raise InputError(
                f"no run of {label} tells clean from corrupted sequences apart: there is no circuit to be found; take "
                "another --corruption, --metric, --step or other runs"
            )
        chosen = edges(runs[0].model(options.step), embeddings=options.embeddings)
        publish("discover", label, runs, results, _shown(results, chosen, options), options.out)


def discover_run(run: Run, options: Discover) -> dict[str, xr.Dataset]:
    """Circuits of one run by every search, and how good they are, a dataset a skill; and the roles of heads."""
    named = last_roles(run)
    results = {"roles": xr.Dataset({"component": ("role", list(named))}, coords={"role": list(named.values())})}
    for skill, selection, test in _settings(run, options):
        results[f"discovery_{skill}"] = _discovered(selection, test, options, run.spec.seed)
    return results


def _settings(run: Run, options: Discover) -> Iterator[tuple[str, Setting, Setting]]:
    """Every skill, with what its circuits are chosen on and what they are judged on."""
    task, seed, model = run.spec.task, run.spec.seed, run.model(options.step)
    kind = corruption(task, options.corruption)
    batch = task.monitor(options.n, split=options.split, generator=generator(seed, "discover", options.split))
    halves = split_halves(batch)

    def setting(skill: str, half: int) -> Setting:
        one_of("--skills", skill, task.skills(halves[half]))
        return Setting(
            model=model,
            pairs=PromptPairs.from_task(task, halves[half], kind=kind, skill=skill, seed=seed),
            metric=_METRICS[options.metric],
            replacement=options.replacement,
            embeddings=options.embeddings,
            refuse=False,
        )

    for skill in options.skills or task.skills(batch):
        yield skill, setting(skill, 0), setting(skill, 1)


def _discovered(selection: Setting, test: Setting, options: Discover, seed: int) -> xr.Dataset:
    """The circuits of every search on some prompts, judged on others."""
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


def _searches(selection: Setting) -> list[str]:
    """Those that can be made: estimates are of patches, and accuracy has no gradient."""
    truth = [SMALLEST] if len(selection.edges) <= MAX_EDGES else []
    estimated = selection.replacement == "patch" and selection.metric != ACCURACY
    return [*truth, GREEDY, BY_EFFECT, *([BY_GRADIENT] if estimated else [])]


def _figures(
    selection: Setting, test: Setting, searches: Sequence[str], options: Discover, seed: int
) -> dict[str, np.ndarray]:
    """What `_AXES` names, as far as there is anything."""
    target, n_edges = options.target, len(selection.edges)
    effect = 1 - selection.faithfulness(~np.eye(n_edges, dtype=bool))
    scores = {BY_EFFECT: labelled(selection.edges, effect)}
    if BY_GRADIENT in searches:
        scores[BY_GRADIENT] = _estimated(selection)
    found = {GREEDY: greedy(selection, target=target).circuit.values}
    curves = {GREEDY: np.full(n_edges + 1, np.nan)}
    for search, score in scores.items():
        top = top_n(selection, score, target=target)
        found[search], curves[search] = top.circuit.values, top.faithfulness.values
    truth = exact(selection, target=target) if SMALLEST in searches else None
    if truth is not None:
        found[SMALLEST], curves[SMALLEST] = truth.minimal.values[0], truth.frontier.values
    circuits = labelled(selection.edges, np.array([found[search] for search in searches]), "search")
    judged = [against_random(test, circuit, n=options.n_random, seed=seed) for circuit in circuits]
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


def _estimated(setting: Setting) -> xr.DataArray:
    """What each edge adds to the metric, by EAP-IG."""
    found = integrate_edges(
        setting.model,
        setting.pairs,
        embeddings=setting.embeddings,
        metrics=(setting.metric,),
        directions=("noising",),
    )
    return (found.clean - found.value).mean("prompt").squeeze(drop=True)


def _by_skill(results: Results) -> dict[str, xr.Dataset]:
    name = "discovery_"
    return {key.removeprefix(name): result for key, result in results.items() if key.startswith(name)}


def _shown(results: Results, chosen: Sequence[Edge], options: Discover) -> Shown:
    found = _by_skill(results)
    first = next(iter(found.values()))
    how = f"{options.metric}, {first.attrs['pairs']}, {options.replacement} elsewhere, target {options.target:g}"
    of_edges = "seeds whose circuit has the edge (edges of no circuit are left out)"
    of_random = f"circuits among {options.n_random} random ones of their size, on other prompts"
    contents = (
        ("circuits", f"circuits, judged on other prompts; {how}", circuit_header(found), circuit_rows(found), 2),
        ("edges", f"{of_edges}; {how}", member_header(found), member_rows(found), 2),
        ("random", f"{of_random}; {how}", CONTROL_HEADER, control_rows(found), 3),
    )
    tables = [Table(name=name, title=title, header=h, rows=r, n_text=n) for name, title, h, r, n in contents]
    figures = []
    for skill, each in found.items():
        drawn = circuit_by_role(chosen, each, results["roles"].component)
        if drawn is not None:
            figures.append((f"{skill}: {each.search.values[0]} circuit, {drawn[0]}; {how}.", drawn[1]))
    over = ", mean over seeds" if first.sizes["seed"] > 1 else ""
    figures.append((f"Faithfulness by number of edges, where they were chosen{over}; {how}.", curve_figure(found)))
    truth = TRUTH if SMALLEST in first.search else NO_TRUTH
    return Shown(tables=tables, figures=figures, notes=[*NOTES, truth])
