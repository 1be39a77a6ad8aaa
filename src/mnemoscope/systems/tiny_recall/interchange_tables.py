"""Two causal models on one network, over seeds: rows of text and a strip of scores."""

from collections import Counter

import plotly.graph_objects as go
import xarray as xr

from mnemoscope.viz import LAYOUT, PALETTE, single, spread

_COLOURS = {"trained": PALETTE[0], "untrained": "#8a93a3"}

SCORE_HEADER = ("network", "causal model", "score", "where chosen", "higher than the other: seeds")


def score_rows(trained: xr.Dataset, untrained: xr.Dataset) -> list[list[str]]:
    """The score of every causal model on both networks, mean [range] over seeds, and in how many it is the better one.

    Both results come from `tiny_recall.compare`, along `seed`; untrained networks are those before training.
    """
    rows = []
    for name, found in (("trained", trained), ("untrained", untrained)):
        for causal in found.causal.values:
            at, others = found.sel(causal=causal), found.score.drop_sel(causal=causal)
            better = int((at.score > others.max("causal")).sum())
            cells = [spread(at.score, ".3f"), spread(at.selection_score, ".3f"), f"{better}/{found.sizes['seed']}"]
            rows.append([name, str(causal), *cells])
    return rows


def better_model(trained: xr.Dataset) -> str:
    """The causal model that scores higher on the trained networks, in one sentence."""
    means = trained.score.mean("seed")
    name = str(means.causal.values[int(means.argmax("causal"))])
    others = trained.score.drop_sel(causal=name).max("causal")
    higher, n = int((trained.score.sel(causal=name) > others).sum()), trained.sizes["seed"]
    score = spread(trained.score.sel(causal=name), ".2f")
    return f"The causal model {name} scores highest ({score}), higher than the other in {higher} of {n} seeds."


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
    """For every variable and kind of pairs the accuracy at its place, and that of every control.

    Arbitrary answers exist for changing pairs only; arguments as above.
    """
    rows = []
    for i, variable in enumerate(trained.variable.values):
        for over in trained.over.values:
            at, before = (found.isel(variable=i).sel(over=over) for found in (trained, untrained))
            arbitrary = at.arbitrary_iia.where(over == "changing")
            controls = [at.before_iia, at.other_iia, at.random_iia.mean("draw"), arbitrary, before.iia]
            cells = [spread(cell, ".2f") for cell in (at.iia, *controls)]
            rows.append([str(trained.causal_model.values[i]), str(variable), str(over), *cells])
    return rows


PLACE_HEADER = ("causal model", "variable", "place", "seeds")


def place_rows(trained: xr.Dataset) -> list[list[str]]:
    """For every variable, in how many seeds each place suits it best; argument as above."""
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
    """For every seed both scores, and the accuracy of the trained network left alone; arguments as above."""
    rows = []
    for seed in trained.seed.values:
        scores = [float(value) for found in (trained, untrained) for value in found.score.sel(seed=seed)]
        follows = float(trained.follows.sel(seed=seed))
        rows.append([str(int(seed)), *(single(value, ".3f") for value in (*scores, follows))])
    return rows


def score_figure(trained: xr.Dataset, untrained: xr.Dataset) -> go.Figure:
    """Scores of both causal models: one dot per seed, one line per network; arguments as above."""
    figure = go.Figure()
    for side, (name, found) in zip((-1, 1), (("trained", trained), ("untrained", untrained)), strict=True):
        n = found.sizes["seed"]
        for i, seed in enumerate(found.seed.values):
            places = [place + 0.2 * side + 0.2 * ((i + 0.5) / n - 0.5) for place in range(found.sizes["causal"])]
            dots = go.Scatter(
                x=places,
                y=found.score.sel(seed=seed).values,
                mode="lines+markers",
                line={"color": _COLOURS[name], "width": 0.4},
                marker={"color": _COLOURS[name], "size": 6, "opacity": 0.7},
                name=name,
                legendgroup=name,
                showlegend=i == 0,
                hovertemplate=f"{name}, seed {int(seed)}: %{{y:.3f}}<extra></extra>",
            )
            figure.add_trace(dots)
    names = [str(causal) for causal in trained.causal.values]
    figure.update_xaxes(tickvals=list(range(len(names))), ticktext=names, range=[-0.5, len(names) - 0.5])
    figure.update_yaxes(title="score", range=[-0.03, 1.03])
    return figure.update_layout(**LAYOUT, height=400)


def _places(found: xr.Dataset) -> list[list[str]]:
    """The place of every variable in every seed."""
    places = found["place"]
    places = places if "seed" in places.dims else places.expand_dims(seed=found.seed)
    return places.transpose("variable", "seed").values.tolist()
