"""Audits of one model as a sentence, a table and a figure with whiskers (`analyses.auditing`)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import plotly.graph_objects as go
import xarray as xr

from mnemoscope.core import positions
from mnemoscope.core.errors import pluralise
from mnemoscope.report.ablation import WORDS
from mnemoscope.report.figures import LAYOUT, PALETTE
from mnemoscope.report.tables import Table, interval, mean_with_range, single_number

QUESTIONS = ("direction", "metric", "kind", "skill", "score_name", "latent")
"""Dimensions that ask another question, in place of naming another part."""
MOST, AT_LEAST = 40, 5
"""Most rows of a question, and the rows that it has though nothing is found."""
MOST_DRAWN, MOST_NAMED = 30, 3
_PARTS = {("edge",): "edge", ("site",): "site", ("layer", "head"): "head"}


@dataclass(frozen=True, kw_only=True)
class Question:
    """The cells of one question of an audit, along `cell`."""

    name: str
    cells: xr.Dataset
    names: list[str]
    thing: str

    @property
    def order(self) -> list[int]:
        """Cells that are listed: those found in most seeds and then of smallest p."""
        first = self.cells if "seed" not in self.cells.dims else self.cells.mean("seed")
        by_p = sorted(range(len(self.names)), key=lambda i: (-float(first.found[i]), float(first.p.fillna(1)[i])))
        n = max(int((first.found > 0).sum()), AT_LEAST)
        return by_p[: min(n, MOST)]


def questions(audits: Mapping[str, xr.Dataset]) -> Iterator[Question]:
    """Every question of audits by skill."""
    for skill, audit in audits.items():
        dims = [str(dim) for dim in audit.found.dims if dim != "seed"]
        asked, parts = ([dim for dim in dims if (dim in QUESTIONS) == wanted] for wanted in (True, False))
        for labels in product(*(audit[dim].values.tolist() for dim in asked)):
            chosen = audit.sel(dict(zip(asked, labels, strict=True)))
            names = ["" if skill == "all" else skill, *(WORDS.get(str(label), str(label)) for label in labels)]
            cells = chosen.stack(cell=parts).transpose("cell", ...) if parts else chosen.expand_dims(cell=[0])
            yield Question(
                name=", ".join(name for name in names if name) or "all",
                cells=cells,
                names=_cell_names(chosen, parts),
                thing=_PARTS.get(tuple(parts), "part" if {"role", "component"} & set(parts) else "cell"),
            )


def _cell_names(chosen: xr.Dataset, parts: list[str]) -> list[str]:
    """The names of cells: L0H1, or `layer 0 pos x5`."""
    if parts == ["layer", "head"]:
        return [f"L{layer}H{head}" for layer, head in product(chosen.layer.values, chosen["head"].values)]
    bare = len(parts) == 1 and parts[0] in ("role", "component", "edge", "site")
    words = {part: "" if bare or part == "role" else f"{positions.axis_word(part)} " for part in parts}
    labels = product(*(positions.axis_labels(chosen, part) for part in parts))
    return [" ".join(words[part] + label for part, label in zip(parts, each, strict=True)) for each in labels]


def audit_sentence(audits: Mapping[str, xr.Dataset]) -> str:
    """The claims that audits allow: how many parts were tried, found and confirmed, against which null."""
    first = next(iter(audits.values()))
    rate = f"{first.attrs['rate']:g}".removeprefix("0")
    said = [_counts(question, rate) for question in questions(audits)]
    how = f"q is over {pluralise(int(first.attrs['n_tests']), 'test')} ({first.attrs['adjusted']}); null: "
    warning = ""
    if (least := float(first.attrs.get("least_q", 0.0))) > first.attrs["rate"]:
        warning = f" With so few prompts a single part cannot have q below {min(least, 1):.2g}; take more prompts."
    sure = "Confirmed: on prompts that had no part in the choice"
    return f"{'; '.join(said)}. {sure}; {how}{first.attrs['null']}.{warning}"


def _counts(question: Question, rate: str) -> str:
    """Numbers of found and confirmed parts, and the names of those that are confirmed."""
    cells = question.cells
    n = int(cells.p.notnull().any([dim for dim in cells.p.dims if dim != "cell"]).sum())
    start = f"{question.name}: "
    if "seed" in cells.dims and cells.sizes["seed"] > 1:
        found, sure = (mean_with_range(cells[name].sum("cell"), ".3g") for name in ("found", "confirmed"))
        return f"{start}{found} of {pluralise(n, question.thing)} a seed at q {rate}, {sure} confirmed"
    cells = cells.squeeze("seed", drop=True) if "seed" in cells.dims else cells
    sure = [question.names[i] for i in question.order if float(cells.confirmed[i]) == 1]
    named = f" ({', '.join(sure[:MOST_NAMED])}{', …' if len(sure) > MOST_NAMED else ''})" if sure else ""
    found = f"{int(cells.found.sum())} of {pluralise(n, question.thing)} at q {rate}"
    return f"{start}{found}, {len(sure)} confirmed{named}"


def audit_table(audits: Mapping[str, xr.Dataset]) -> Table:
    """The effect of every listed part with its interval, p and q, and the effect on prompts that did not choose.

    Parts that are found are listed, and of each question at least those with the smallest p. Over several seeds
    effects are mean [range], and the columns of decisions give the number of seeds.
    """
    rows = []
    for question in questions(audits):
        for i in question.order:
            cell = question.cells.isel(cell=i)
            numbers = _of_seeds(cell) if "seed" in cell.dims and cell.sizes["seed"] > 1 else _of_one(cell)
            rows.append([question.names[i], question.name, *numbers])
    first = next(iter(audits.values()))
    header = ("part", "question", "effect", "p", "q", "found", "confirmed", "effect left", "share of the whole left")
    title = f"audit; null: {first.attrs['null']}"
    return Table(name="audit", title=title, header=header, rows=rows, n_text=2)


def _of_one(cell: xr.Dataset) -> list[str]:
    cell = cell.squeeze(drop=True)
    ends = ([float(cell[at + name]) for name in ("effect", "low", "high")] for at in ("", "held_out_"))
    chose, left = (interval(mean, low, high, ".3g") for mean, low, high in ends)
    decided = ["yes" if float(cell[name]) == 1 else "no" for name in ("found", "confirmed")]
    share = single_number(float(cell.held_out_effect / cell.held_out_whole), ".2f") if "whole" in cell else "–"
    return [chose, *(single_number(float(cell[name]), ".2g") for name in ("p", "q")), *decided, left, share]


def _of_seeds(cell: xr.Dataset) -> list[str]:
    n = cell.sizes["seed"]
    decided = [f"{int(cell[name].sum())} of {n}" for name in ("found", "confirmed")]
    share = mean_with_range(cell.held_out_effect / cell.held_out_whole, ".2f") if "whole" in cell else "–"
    numbers = [mean_with_range(cell[name], form) for name, form in (("effect", ".3g"), ("p", ".2g"), ("q", ".2g"))]
    return [*numbers, *decided, mean_with_range(cell.held_out_effect, ".3g"), share]


def audit_figure(audits: Mapping[str, xr.Dataset]) -> go.Figure | None:
    """The effects of listed parts with whiskers, where they were chosen and where they were not, one seed or the mean.

    Full dots are confirmed. None where no part has an effect.
    """
    rows = [(question, i) for question in questions(audits) for i in question.order]
    cells = [question.cells.isel(cell=i) for question, i in rows]
    cells = [cell.mean("seed") if "seed" in cell.dims else cell for cell in cells]
    kept = [i for i, cell in enumerate(cells) if abs(float(cell.effect)) > 0][:MOST_DRAWN]
    if not kept:
        return None
    names = [f"{rows[i][0].names[rows[i][1]]} · {rows[i][0].name}" for i in kept]
    figure = go.Figure()
    for at, label, colour, shift in (
        ("", "prompts that chose", PALETTE[4], 0.14),
        ("held_out_", "prompts that did not", PALETTE[0], -0.14),
    ):
        effect, low, high = ([float(cells[i][at + name]) for i in kept] for name in ("effect", "low", "high"))
        sure = [float(cells[i].confirmed) > 0.5 for i in kept]
        figure.add_scatter(
            x=effect,
            y=[place + shift for place in range(len(kept))],
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [end - mean for end, mean in zip(high, effect, strict=True)],
                "arrayminus": [mean - end for mean, end in zip(effect, low, strict=True)],
            },
            mode="markers",
            name=label,
            marker={"color": colour, "symbol": ["circle" if each else "circle-open" for each in sure], "size": 7},
            text=names,
            hovertemplate=f"%{{text}}, {label}: %{{x:.3g}}<extra></extra>",
        )
    figure.add_vline(x=0, line={"color": "#b8bfca", "width": 1})
    figure.update_yaxes(tickvals=list(range(len(kept))), ticktext=names, autorange="reversed")
    figure.update_xaxes(title="effect; full dots: confirmed")
    return figure.update_layout(**LAYOUT, height=120 + 34 * len(kept))
