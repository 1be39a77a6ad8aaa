"""A specification curve: the verdict under every combination of analysis choices, and the choices behind each.

Above, the combinations in the order of the share of replicates that meet the criterion, with its exact interval. Below,
a row for each value of each choice, with a mark where the combination has it, and the number of those that agree with
the verdict.

Source: Simonsohn, Simmons & Nelson 2020.
"""

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mnemoscope.claims.claim import Outcome
from mnemoscope.claims.multiverse import Multiverse

_LOOKS: dict[Outcome, tuple[str, str]] = {
    "SUPPORTED": ("#00705a", "circle"),
    "REFUTED": ("#b4480f", "x"),
    "MIXED": ("#8a5fbf", "diamond"),
    "INCONCLUSIVE": ("#7b8494", "circle-open"),
    "NOT_APPLICABLE": ("#aab2bf", "line-ew-open"),
}
_ROW, _CURVE, _REST = 17, 190, 70


def specification_curve(multiverse: Multiverse) -> tuple[go.Figure, str]:
    """The figure, with its caption."""
    judged = sorted(multiverse.universes, key=lambda each: (each.verdict.share, each.verdict.effect))
    labels = {(name, value): f"{name}: {value}, {agree} of {n}" for name, value, agree, n in multiverse.agreement}
    rows = list(labels)
    height = _CURVE + _ROW * len(rows) + _REST
    figure = make_subplots(
        rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.03, row_heights=[_CURVE, _ROW * len(rows)]
    )
    for outcome, (colour, symbol) in _LOOKS.items():
        places = [x for x, each in enumerate(judged, 1) if each.outcome == outcome]
        if not places:
            continue
        chosen = [judged[x - 1] for x in places]
        shares = [each.verdict.share for each in chosen]
        figure.add_trace(
            go.Scatter(
                x=places,
                y=shares,
                error_y={
                    "type": "data",
                    "symmetric": False,
                    "array": [each.verdict.share_interval.high - each.verdict.share for each in chosen],
                    "arrayminus": [each.verdict.share - each.verdict.share_interval.low for each in chosen],
                    "thickness": 0.6,
                    "width": 0,
                },
                mode="markers",
                name=f"{outcome.replace('_', ' ').lower()} ({len(places)})",
                marker={"color": colour, "symbol": symbol, "size": 5},
                text=["<br>".join(f"{name}: {value}" for name, value in each.choices.items()) for each in chosen],
                hovertemplate="share %{y:.2f}<br>%{text}<extra></extra>",
            ),
            row=1,
            col=1,
        )
        marks = [(x, row) for x, each in zip(places, chosen, strict=True) for row in each.choices.items()]
        figure.add_trace(
            go.Scatter(
                x=[x for x, _ in marks],
                y=[rows.index(row) for _, row in marks],
                mode="markers",
                marker={"color": colour, "symbol": "line-ns-open", "size": 8},
                showlegend=False,
                hoverinfo="skip",
            ),
            row=2,
            col=1,
        )
    figure.update_yaxes(title="share that meets it", range=[-0.03, 1.03], gridcolor="#e6eaf0", row=1, col=1)
    figure.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=list(labels.values()),
        range=[len(rows) - 0.4, -0.6],
        showgrid=False,
        zeroline=False,
        automargin=True,
        row=2,
        col=1,
    )
    figure.update_xaxes(showgrid=False, zeroline=False)
    figure.update_xaxes(title="combination, by its share", row=2, col=1)
    figure.update_layout(
        template="none",
        font={"family": "system-ui, sans-serif", "size": 11, "color": "#1d2433"},
        margin={"l": 12, "r": 12, "t": 34, "b": 40},
        height=height,
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
    )
    return figure, multiverse.sentence
