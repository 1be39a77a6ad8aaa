"""What the data does: which tokens are triggers, and where outputs come from."""

from collections.abc import Mapping

import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from mnemoscope.systems.in_context_bigrams.figures.bands import band
from mnemoscope.viz import LAYOUT

LOSSES = {"loss_in_context": ("in-context", "#1f5fbf"), "loss_global": ("global bigrams", "#c8501e")}
OUTPUTS = {"uniform": "#1f5fbf", "bigram": "#c8501e"}


def losses(trajectories: Mapping[str, xr.Dataset]) -> go.Figure:
    """Loss where outputs can be read from the context, and where global bigrams are all there is; a panel a setting.

    Args:
        trajectories: Title of a setting (random, frequent, rare triggers) to measures over (seed, step).
    """
    figure = make_subplots(1, len(trajectories), subplot_titles=list(trajectories), shared_yaxes=True)
    for column, found in enumerate(trajectories.values(), 1):
        for measure, (name, colour) in LOSSES.items():
            band(figure, found[measure], name, colour, column=column, legend=column == 1)
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title="loss (nats)", row=1, col=1)
    figure.update_xaxes(title="training step")
    return figure.update_layout(**LAYOUT, height=380)


def outputs(trajectories: Mapping[str, xr.Dataset]) -> go.Figure:
    """What the distribution of outputs in training does: accuracy on either distribution, and two memories.

    Args:
        trajectories: The distribution in training, `uniform` or `bigram`, to measures over (seed, step).
    """
    titles = ("in-context accuracy", "W<sub>O</sub><sup>2</sup>: recall", "W<sub>F</sub>: KL from the bigrams (nats)")
    figure = make_subplots(1, 3, subplot_titles=titles, horizontal_spacing=0.07)
    for trained, found in trajectories.items():
        colour = OUTPUTS[trained]
        for tested in OUTPUTS:
            name = f"trained on {trained}, tested on {tested}"
            dash = "solid" if tested == trained else "dash"
            band(figure, found[f"accuracy_in_context_{tested}_outputs"], name, colour, dash=dash)
        for column, measure in ((2, "recall_copied_token"), (3, "feed_forward_kl")):
            band(figure, found[measure], f"trained on {trained}", colour, column=column, legend=False)
    for column in (1, 2):
        figure.update_yaxes(range=[-0.03, 1.05], row=1, col=column)
    figure.update_yaxes(rangemode="tozero", row=1, col=3)
    figure.update_xaxes(title="training step")
    return figure.update_layout(**LAYOUT, height=380)
