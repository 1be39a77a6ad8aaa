"""Results on permutation lookup as rows of text and as plotly figures."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle

import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from mnemoscope.report import COLOURS, LAYOUT, PALETTE, Results, mean_with_range, single_number
from mnemoscope.systems.tiny_recall.analyses.predictions import TARGET, marks
from mnemoscope.systems.tiny_recall.analyses.published import compare

LEARNED = 0.99
"""Accuracy on unseen mappings from which a skill counts as learned."""


def learned_skills(results: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Accuracy of elimination (fresh) and recall (repeats) on unseen mappings, over (seed, skill), and `learned`."""
    last = results["evaluation"].accuracy.sel(split="test").isel(pos=-1, drop=True)
    accuracy = last.sel(subgroup=["fresh", "repeat"]).rename(subgroup="skill")
    accuracy = accuracy.assign_coords(skill=["elimination", "recall"])
    return xr.Dataset({"accuracy": accuracy, "learned": accuracy >= LEARNED})


def learned_rows(results: Mapping[str, Results]) -> list[list[str]]:
    """For every configuration: both skills, how many seeds learned them, loss on training and on unseen mappings."""
    rows = []
    for label, result in results.items():
        each = learned_skills(result)
        loss = result["evaluation"].loss.sel(subgroup="all").mean("pos")
        counts = [f"{int(each.learned.sel(skill=s).sum())}/{each.sizes['seed']}" for s in ("elimination", "recall")]
        shares = [mean_with_range(each.accuracy.sel(skill=s)) for s in ("elimination", "recall")]
        rows.append(
            [
                label,
                shares[0],
                counts[0],
                shares[1],
                counts[1],
                *(mean_with_range(loss.sel(split=s)) for s in ("train", "test")),
            ]
        )
    return rows


LEARNED_HEADER = ("configuration", "elimination", "learned", "recall", "learned", "loss, training", "loss, unseen")


def published_rows(result: Results, preset: str) -> list[list[str]]:
    """Published, ours (mean and range over seeds) and the difference, one row per figure."""
    table = compare(preset, result["sampled"], result["conflict"])
    rows = []
    for i in range(table.sizes["row"]):
        row = table.isel(row=i)
        slot = f"slot {int(row.slot)}" if int(row.slot) else "all slots"
        place = f"{row.subgroup.values!s}, {slot}" + (", training mappings" if row.split == "train" else "")
        rows.append(
            [
                f"{str(row.quantity.values).replace('_', ' ')}, {place}",
                single_number(float(row.published), ".6g"),
                single_number(float(row["mean"]), ".6f"),
                f"{float(row['min']):.6f} to {float(row['max']):.6f}",
                single_number(float(row.difference), "+.6f"),
            ]
        )
    return rows


PUBLISHED_HEADER = ("quantity, sequences, slot", "published", "ours", "range over seeds", "difference")


EVALUATION_HEADER = (
    "mappings, sequences, slot",
    "accuracy",
    "loss",
    "KL to Bayes",
    "mean abs. error",
    "max abs. error",
    "Bayes accuracy",
    "floor",
)


def evaluation_rows(evaluation: xr.Dataset) -> list[list[str]]:
    """Accuracy and loss, and the distance to the uniform posterior, by split, subgroup and slot, over seeds."""
    rows = []
    for name, at in _places(evaluation):
        bayes = at.sel(reference="bayes")
        cells = [at.accuracy, at.loss, bayes.kl, bayes.mean_abs_error, bayes.max_abs_error]
        rows.append([name, *(mean_with_range(cell) for cell in (*cells, bayes.best_accuracy, bayes.floor))])
    return rows


def reference_header(evaluation: xr.Dataset) -> Sequence[str]:
    """Column names of `reference_rows`."""
    return ("mappings, sequences, slot", *(str(name).replace("_", ", ") for name in evaluation.reference.values))


def reference_rows(evaluation: xr.Dataset) -> list[list[str]]:
    """KL divergence (nats) from every exact predictor to the model, by split, subgroup and slot, over seeds.

    Infinite where the model excludes what the predictor allows. Sequences on which the predictor is undefined are left
    out, and the share of the others follows; a dash where there are none.
    """
    return [
        [name, *(_distance(at.sel(reference=reference)) for reference in evaluation.reference.values)]
        for name, at in _places(evaluation)
    ]


def _distance(at: xr.Dataset) -> str:
    defined = float(at.defined.mean())
    return mean_with_range(at.kl) + (f" on {defined:.0%}" if 0 < defined < 1 else "")


def _places(evaluation: xr.Dataset) -> Iterator[tuple[str, xr.Dataset]]:
    """Every split and slot; subgroups are distinguished in the last slot only, since before it they are the same."""
    last = evaluation.sizes["pos"]
    for split in evaluation.split.values:
        for slot in range(1, last + 1):
            groups = evaluation.subgroup.values.tolist()[1:] if slot == last else ["all"]
            for group in groups:
                yield (
                    f"{split}, {group}, slot {slot}",
                    evaluation.sel(split=split, subgroup=group).isel(pos=slot - 1),
                )


CONFLICT_HEADER = (
    "slot that the last x repeats",
    "p(recalled)",
    "p(unused)",
    "p(other)",
    "chose recalled",
    "chose unused",
)


def conflict_rows(conflict: xr.Dataset) -> list[list[str]]:
    """Probability and choice of either answer on the conflict set, by the slot that is repeated, over seeds."""
    names = ("p_recalled", "p_unused", "p_other", "chose_recalled", "chose_unused")
    return [
        [f"slot {int(slot)}", *(mean_with_range(conflict[name].sel(source_slot=slot)) for name in names)]
        for slot in conflict.source_slot.values
    ]


_COLOURS = {**COLOURS, "elimination": PALETTE[0], "recall": PALETTE[1], "bayes": "#b8bfca"}


def training_curves(metrics: xr.Dataset, floors: Mapping[str, float]) -> go.Figure:
    """Loss in nats on both splits with exact floors, accuracy of both skills, from `Run.metrics`: a line per seed."""
    figure = make_subplots(1, 2, subplot_titles=("loss (nats per scored position)", "accuracy on unseen mappings"))
    for name, column, key in (
        ("train mappings", 1, "train"),
        ("test mappings", 1, "test"),
        ("elimination", 2, "elimination"),
        ("recall", 2, "recall"),
    ):
        values = metrics[f"{key}_loss" if column == 1 else f"test_{key}"]
        for i in range(metrics.sizes["seed"]):
            line = go.Scatter(
                x=metrics.step.values,
                y=values.isel(seed=i).values,
                line={"color": _COLOURS[key], "width": 1.2},
                opacity=0.75,
                name=name,
                legendgroup=name,
                showlegend=i == 0,
                hovertemplate=f"{name}, seed {int(metrics.seed[i])}: %{{y:.4f}} at step %{{x}}<extra></extra>",
            )
            figure.add_trace(line, 1, column)
    for (name, value), place in zip(floors.items(), cycle(("top left", "bottom left"))):
        note = {"annotation_text": name, "annotation_font_size": 11, "annotation_position": place}
        figure.add_hline(y=value, line={"dash": "dot", "color": "#333", "width": 1}, **{"row": 1, "col": 1}, **note)
    lowest = min(0.9, *(value for value in floors.values() if math.isfinite(value)))
    figure.update_yaxes(range=[lowest - 0.04, 1.3], row=1, col=1)
    figure.update_yaxes(range=[-0.03, 1.03], row=1, col=2)
    figure.update_xaxes(title="training step")
    return figure.update_layout(**LAYOUT, height=380)


def attention_by_role(attention: xr.Dataset, subgroup: str) -> go.Figure:
    """Attention from the x of every slot, from `attention_shares` by role, mean over seeds: a heatmap for each role."""
    roles = [str(role) for role in attention.role.values]
    figure = make_subplots(1, len(roles), subplot_titles=roles, shared_yaxes=True)
    targets = [str(target) for target in attention.target.values if target != "own_x"]
    for column, role in enumerate(roles, 1):
        shares = attention.share.sel(subgroup=subgroup, query="x", role=role, target=targets).mean("seed")
        values = shares.transpose("slot", "target").values
        heat = go.Heatmap(
            z=values,
            x=[target.replace("_", " ") for target in targets],
            y=[f"x{slot}" for slot in shares.slot.values],
            zmin=0,
            zmax=1,
            colorscale="Blues",
            text=[["" if math.isnan(v) else f"{v:.2f}" for v in row] for row in values],
            texttemplate="%{text}",
            showscale=False,
            hovertemplate="%{y} to %{x}: %{z:.3f}<extra></extra>",
        )
        figure.add_trace(heat, 1, column)
    figure.update_yaxes(autorange="reversed")
    return figure.update_layout(**LAYOUT, height=320)


PREDICTION_CAPTION = (
    "Model and Bayes reference, slot by slot. A frame marks the target, ✕ values that are ruled out because earlier "
    "pairs have used them. Where x repeats (x5 = x1), ↩ marks the y of the earlier pair, which is the answer."
)


def prediction(result: xr.Dataset) -> go.Figure:
    """The distribution over y at every slot beside the Bayes reference, from `predict`; see `PREDICTION_CAPTION`."""
    slots = result.slot.values.tolist()
    titles = [_slot_title(result.sel(slot=slot)) for slot in slots]
    figure = make_subplots(1, len(slots), subplot_titles=titles, shared_yaxes=True)
    for column, slot in enumerate(slots, 1):
        at = result.sel(slot=slot)
        target = int(at.target)
        names = [" ".join((str(value), *_signs(at, int(value)))) for value in at.value.values]
        frame = [2.5 if value == target else 0 for value in at.value.values]
        for name, key, colour in (("model", "probability", _COLOURS["model"]), ("Bayes", "bayes", _COLOURS["bayes"])):
            bars = go.Bar(
                x=names,
                y=at[key].values,
                name=name,
                marker={"color": colour, "line": {"color": "#1d2433", "width": frame if key == "probability" else 0}},
                showlegend=column == 1,
                hovertemplate=f"{name}: %{{y:.4f}}<extra></extra>",
            )
            figure.add_trace(bars, 1, column)
    figure.update_yaxes(range=[0, 1.02])
    figure.update_yaxes(title="probability", row=1, col=1)
    figure.update_xaxes(type="category", tickangle=0)
    return figure.update_layout(**LAYOUT, height=300, barmode="group")


def _slot_title(at: xr.Dataset) -> str:
    repeat = f" = x{int(at.repeats)}" if at.repeats else ""
    return f"x{int(at.slot)}{repeat} = {int(at.x)}"


def _signs(at: xr.Dataset, value: int) -> list[str]:
    """The signs of a value on the axis; the target has its frame."""
    return [mark[0] for mark in marks(at, value) if mark != TARGET]
