"""Names of tokens, and a model's predictions after every token of a sequence, as a table and as a figure."""

import math
from collections.abc import Sequence
from html import escape
from typing import Protocol, runtime_checkable

import plotly.graph_objects as go
import xarray as xr

from mnemoscope.core.positions import axis_labels
from mnemoscope.core.protocols import Task, class_names
from mnemoscope.report.figures import COLOURS, LAYOUT
from mnemoscope.report.tables import Table, format_rounded
from mnemoscope.report.task_report import REPORTS

CAPTION = "Probability of what follows, by the token that it follows; point at a bar for the likeliest tokens."
KNOWN = "known"
"""Coordinate with the task's knowledge about every position, in words."""
_VISIBLE = {"\n": "⏎", " ": "␣", "\t": "⇥"}


@runtime_checkable
class HasSymbols(Protocol):
    """A task whose tokens are symbols of a text."""

    @property
    def symbols(self) -> Sequence[str]:
        """One symbol per token, in their order."""
        ...


def token_symbols(task: Task) -> list[str]:
    """A visible name of every token: its symbol where the task or its report entry has symbols, else its number."""
    named = REPORTS.get(task.name).symbols if task.name in REPORTS.names() else None
    if named is not None:
        return [show_whitespace(symbol) for symbol in named(task)]
    if isinstance(task, HasSymbols):
        return [show_whitespace(symbol) for symbol in task.symbols]
    return [str(token) for token in range(task.d_vocab)]


def output_symbols(task: Task) -> list[str]:
    """A visible name of every output: the classes of a task that has some, else its tokens."""
    return [show_whitespace(name) for name in class_names(task)] or token_symbols(task)


def show_whitespace(symbol: str) -> str:
    """A symbol in a form that can be seen."""
    return _VISIBLE.get(symbol, symbol if symbol.isprintable() else repr(symbol)[1:-1])


def show_line_breaks(text: str) -> str:
    """A text with its line breaks shown."""
    return text.replace("\n", _VISIBLE["\n"])


def guess_table(result: xr.Dataset) -> Table:
    """One row per position: token, next token, its probability, the likeliest tokens; model and exact predictor.

    `result` comes from `ms.predict`. The coordinate `symbol` has the names of the tokens, `output` those of
    classes; where the task has words for its knowledge, `known` along `pos` holds them, and they are shown too.
    """
    columns = [("", "model")]
    if "ideal_guess" in result:
        columns.append(("ideal_", result.attrs["reference"].replace("_", " ")))
    classes = "output" in result.coords
    texts = [
        "position",
        "token",
        "class" if classes else "next",
        *(["what the task knows"] if KNOWN in result.coords else []),
    ]
    texts += [f"{name}: likeliest" for _, name in columns]
    header = [*texts, *(f"{name}: p" for _, name in columns), *(["KL"] if "kl" in result else [])]
    rows, positions = [], axis_labels(result, "pos")
    for pos in range(result.sizes["pos"]):
        at = result.isel(pos=pos)
        row = [positions[pos], _symbol(result, at.token), _output(result, at.following)]
        row += [str(at[KNOWN].item())] if KNOWN in result.coords else []
        row += [_format_guesses(result, at, prefix) for prefix, _ in columns]
        row += [_format_number(at[f"{prefix}p_following"], ".3f") for prefix, _ in columns]
        rows.append([*row, *([_format_number(at.kl, ".4f")] if "kl" in result else [])])
    title = "the class at each position" if classes else "what follows each token"
    title += ": p, its probability" + (", and KL to the model in nats" if "kl" in result else "")
    return Table(name="predictions", title=title, header=header, rows=rows, n_text=len(texts))


def guess_figure(result: xr.Dataset) -> go.Figure:
    """As `guess_table`: probability of the next token, bars of the model and dots of the exact predictor."""
    tokens = [_symbol(result, token) for token in result.token]
    if "pos_name" in result.coords:
        tokens = [f"{name}={token}" for name, token in zip(axis_labels(result, "pos"), tokens, strict=True)]
    positions = result.pos.values
    hover = [
        " · ".join(
            escape(text)
            for text in (
                f"{place}: after {_symbol(result, at.token)}: {_output(result, at.following) or '?'}",
                _format_guesses(result, at, ""),
                str(at[KNOWN].item()) if KNOWN in result.coords else "",
            )
            if text
        )
        for place, at in zip(axis_labels(result, "pos"), (result.isel(pos=pos) for pos in positions), strict=True)
    ]
    bars = go.Bar(
        x=positions,
        y=result.p_following.values,
        name="model",
        marker_color=COLOURS["model"],
        customdata=hover,
        hovertemplate="%{customdata}<extra></extra>",
    )
    figure = go.Figure(bars)
    if "ideal_p_following" in result:
        dots = {"mode": "markers", "marker": {"color": "#1d2433", "size": 5}}
        name = result.attrs["reference"].replace("_", " ")
        figure.add_trace(go.Scatter(x=positions, y=result.ideal_p_following.values, name=name, **dots))
    figure.update_yaxes(range=[0, 1.02], title="probability")
    figure.update_xaxes(tickvals=positions, ticktext=[escape(token) for token in tokens], tickangle=0, tickfont_size=10)
    return figure.update_layout(**LAYOUT, height=320)


def _symbol(result: xr.Dataset, token: xr.DataArray) -> str:
    return str(result.symbol.values[int(token)]) if int(token) >= 0 else ""


def _output(result: xr.Dataset, number: xr.DataArray) -> str:
    names = result.output if "output" in result.coords else result.symbol
    return str(names.values[int(number)]) if int(number) >= 0 else ""


def _format_guesses(result: xr.Dataset, at: xr.Dataset, prefix: str) -> str:
    pairs = zip(at[f"{prefix}guess"], at[f"{prefix}p_guess"], strict=True)
    return "  ".join(f"{_output(result, token)} {float(p):.2f}" for token, p in pairs if int(token) >= 0)


def _format_number(value: xr.DataArray, form: str) -> str:
    return "" if math.isnan(float(value)) else format_rounded(float(value), form)
