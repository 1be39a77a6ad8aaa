"""The analysis `interchange`: two causal models of permutation lookup on a run's heads, and before training."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mnemoscope as ms
from mnemoscope import InputError
from mnemoscope.core import in_range
from mnemoscope.records import MeasuredRuns, Options, Record, register

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True, kw_only=True)
class Interchange(Options):
    """Interchange interventions: which of two causal models of elimination and recall the heads can be read as."""

    n: int = 1024
    """Sequences of each subgroup; one half chooses which heads carry which variable, the other tests it."""
    n_pairs: int = 2048
    """Pairs of sequences between which activations are exchanged, from either half."""
    n_random: int = 20
    """Random subspaces to compare with."""


LIMITS = (
    "Two causal models give the same answers and differ when a variable is taken from another sequence. 'Elimination "
    "and recall': the set of values that stood as y, and the y that stood with this x before. 'Values and match': the "
    "y of every slot, and the slot where x stood before. Every variable gets a head of its own, with the MLP or "
    "without, chosen on one half of the prompts; its output where the answer is due is exchanged between two sequences "
    "of the other half. Interchange intervention accuracy is how often the network then answers as the causal model.",
    "'Changing' pairs are those where the causal model's answer becomes another one, so that a network left alone "
    "cannot score; on 'kept' pairs it stays, so that a head that carries more than the variable fails. The score of a "
    "causal model is the smallest accuracy over its variables, changing and kept. Controls: the place of the model's "
    "other variable, random subspaces as wide as a head, arbitrary answers to the same pairs, and an untrained network "
    "with the best places that it has.",
    "A score near 1 shows that the heads can be read as these variables on this distribution. It does not show that no "
    "other causal model can be read as well, nor that a variable is nowhere else besides; and a low one does not show "
    "that the variables are nowhere: two heads may write one together.",
)
GREY = "#8a93a3"


def measure(run: ms.Run, options: Interchange) -> dict[str, xr.Dataset]:
    """Both causal models on one run, places by role, and on the same network before training, places by number."""
    from mnemoscope.systems.tiny_recall.analyses.causal_models import compare
    from mnemoscope.systems.tiny_recall.tasks import lookup_task

    task, model, seed = lookup_task(run.spec.task), run.hooked(options.step), run.spec.seed
    if model.cfg.n_layers * model.cfg.n_heads < 2:
        raise InputError(
            f"{run.path} has one head; both causal models have two variables, and each needs a head of its own: take "
            "runs with two heads or more"
        )
    found = {}
    for name, network in ms.core.progress((("interchange", model), ("untrained", run.untrained(own=True)))):
        subject = ms.Subject(model=network, task=task, seed=seed)
        result = compare(subject, n=options.n, n_pairs=options.n_pairs, n_random=options.n_random, split=options.split)
        found[name] = result.assign(follows=result.attrs.pop("follows"))
    named = ms.analyses.last_roles(run)
    places = [ms.analyses.rename_heads(str(place), named) for place in found["interchange"]["place"].values]
    found["interchange"] = found["interchange"].assign_coords(place=("variable", places))
    return found


def tables(measured: MeasuredRuns) -> list[ms.report.Table]:
    """Scores, variables, places and seeds."""
    trained, untrained = _networks(measured)
    contents = (
        ("scores", "score of both causal models", SCORE_HEADER, score_rows(trained, untrained), 2),
        ("variables", "exchanged at the place of each variable", VARIABLE_HEADER, variable_rows(trained, untrained), 3),
        ("places", "places of the variables", PLACE_HEADER, place_rows(trained), 3),
        ("seeds", "scores by seed", seed_header(trained), seed_rows(trained, untrained), 1),
    )
    return [ms.report.Table(name=name, title=title, header=h, rows=r, n_text=n) for name, title, h, r, n in contents]


def _networks(measured: MeasuredRuns) -> tuple[xr.Dataset, xr.Dataset]:
    return measured.results["interchange"], measured.results["untrained"]


SCORE_HEADER = ("network", "causal model", "score", "where chosen", "higher than the other: seeds")


def score_rows(trained: xr.Dataset, untrained: xr.Dataset) -> list[list[str]]:
    """Scores of every causal model, mean [range] over seeds, on both networks, and in how many it is the better one."""
    rows = []
    for name, found in (("trained", trained), ("untrained", untrained)):
        for causal in found.causal.values:
            at, others = found.sel(causal=causal), found.score.drop_sel(causal=causal)
            better = int((at.score > others.max("causal")).sum())
            cells = [
                ms.report.mean_with_range(at.score, ".3f"),
                ms.report.mean_with_range(at.selection_score, ".3f"),
                f"{better}/{found.sizes['seed']}",
            ]
            rows.append([name, str(causal), *cells])
    return rows


VARIABLE_HEADER = (
    "causal model",
    "variable",
    "pairs",
    "accuracy",
    "nothing exchanged",
    "other place",
    "random subspaces",
    "arbitrary answers",
    "untrained",
)


def variable_rows(trained: xr.Dataset, untrained: xr.Dataset) -> list[list[str]]:
    """For every variable and kind of pairs the accuracy at its place and under every control."""
    rows = []
    for i, variable in enumerate(trained.variable.values):
        for over in trained.over.values:
            at, before = (found.isel(variable=i).sel(over=over) for found in (trained, untrained))
            arbitrary = at.arbitrary_iia.where(over == "changing")
            controls = [at.before_iia, at.other_iia, at.random_iia.mean("draw"), arbitrary, before.iia]
            cells = [ms.report.mean_with_range(cell, ".2f") for cell in (at.iia, *controls)]
            rows.append([str(trained.causal_model.values[i]), str(variable), str(over), *cells])
    return rows


PLACE_HEADER = ("causal model", "variable", "place", "seeds")


def place_rows(trained: xr.Dataset) -> list[list[str]]:
    """For every variable, the number of seeds in which each place suits it best."""
    rows = []
    for i, variable in enumerate(trained.variable.values):
        for place, n in Counter(_places(trained)[i]).most_common():
            rows.append([str(trained.causal_model.values[i]), str(variable), place, str(n)])
    return rows


def seed_header(trained: xr.Dataset) -> list[str]:
    """Column names of `seed_rows`."""
    names = [str(name) for name in trained.causal.values]
    return ["seed", *names, *(f"{name}, untrained" for name in names), "accuracy, trained"]


def seed_rows(trained: xr.Dataset, untrained: xr.Dataset) -> list[list[str]]:
    """For every seed both scores, and the accuracy of the trained network left alone."""
    rows = []
    for seed in trained.seed.values:
        scores = [float(value) for found in (trained, untrained) for value in found.score.sel(seed=seed)]
        follows = float(trained.follows.sel(seed=seed))
        rows.append([str(int(seed)), *(ms.report.single_number(value, ".3f") for value in (*scores, follows))])
    return rows


def _places(found: xr.Dataset) -> list[list[str]]:
    places = found["place"]
    places = places if "seed" in places.dims else places.expand_dims(seed=found.seed)
    return places.transpose("variable", "seed").values.tolist()


def figures(measured: MeasuredRuns) -> list[tuple[str, Any]]:
    """Scores as a strip of dots."""
    caption = "Score of both causal models; dots are seeds, a line joins those of one network."
    return [(caption, score_figure(*_networks(measured)))]


def score_figure(trained: xr.Dataset, untrained: xr.Dataset) -> Any:
    """Scores of both causal models: one dot per seed, one line per network."""
    import plotly.graph_objects as go

    figure, networks = go.Figure(), (("trained", trained, ms.report.PALETTE[0]), ("untrained", untrained, GREY))
    for side, (name, found, colour) in zip((-1, 1), networks, strict=True):
        n = found.sizes["seed"]
        for i, seed in enumerate(found.seed.values):
            places = [place + 0.2 * side + 0.2 * ((i + 0.5) / n - 0.5) for place in range(found.sizes["causal"])]
            dots = go.Scatter(
                x=places,
                y=found.score.sel(seed=seed).values,
                mode="lines+markers",
                line={"color": colour, "width": 0.4},
                marker={"color": colour, "size": 6, "opacity": 0.7},
                name=name,
                legendgroup=name,
                showlegend=i == 0,
                hovertemplate=f"{name}, seed {int(seed)}: %{{y:.3f}}<extra></extra>",
            )
            figure.add_trace(dots)
    names = [str(causal) for causal in trained.causal.values]
    figure.update_xaxes(tickvals=list(range(len(names))), ticktext=names, range=[-0.5, len(names) - 0.5])
    figure.update_yaxes(title="score", range=[-0.03, 1.03])
    return figure.update_layout(**ms.report.LAYOUT, height=400)


def finding(measured: MeasuredRuns) -> str:
    """The causal model that scores higher on the trained networks."""
    trained: xr.Dataset = measured.results["interchange"]
    means = trained.score.mean("seed")
    name = str(means.causal.values[int(means.argmax("causal"))])
    others = trained.score.drop_sel(causal=name).max("causal")
    higher, n = int((trained.score.sel(causal=name) > others).sum()), trained.sizes["seed"]
    score = ms.report.mean_with_range(trained.score.sel(causal=name), ".2f")
    return f"The causal model {name} scores highest ({score}), higher than the other in {higher} of {n} seeds."


def check(options: Interchange) -> None:
    """Refuse numbers below 1."""
    for name, given in (("--n-pairs", options.n_pairs), ("--n-random", options.n_random)):
        in_range(name, given, 1, float("inf"))


register(
    Record(
        name="interchange",
        options=Interchange,
        measure=measure,
        tables=tables,
        figures=figures,
        finding=finding,
        limits=LIMITS,
        check=check,
    )
)
