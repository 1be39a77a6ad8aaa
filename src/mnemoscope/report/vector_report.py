"""The report on tasks of vectors, with pieces of `plain_report`: squared errors by part of the answer, attention."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import plotly.graph_objects as go
import xarray as xr

from mnemoscope.analyses.attention import named_patterns
from mnemoscope.analyses.evaluation import evaluate as evaluate_model
from mnemoscope.analyses.evaluation import evaluate_splits
from mnemoscope.analyses.roles import ablate_by_role, roles_of, with_roles
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.positions import axis_labels
from mnemoscope.core.protocols import HookedModel, Task
from mnemoscope.core.seeding import generator
from mnemoscope.models.run import Run
from mnemoscope.report import plain_report as plain
from mnemoscope.report.figures import heatmaps
from mnemoscope.report.guesses import KNOWN
from mnemoscope.report.page import Page
from mnemoscope.report.tables import Results, Table, format_rounded, mean_with_range

Patterns = Callable[[HookedModel, Any, Batch], xr.Dataset]


def patterns(model: HookedModel, task: Task, batch: Batch) -> xr.Dataset:
    """The attention of every head on every sequence; for vectors only the positions are named."""
    return named_patterns(model, batch)


def examine(run: Run, patterns: Patterns = patterns) -> dict[str, xr.Dataset]:
    """Training, evaluation, ablation, and attention on one sequence, whose positions `patterns` names."""
    task, model, n = run.spec.task, run.hooked(), plain.N_ABLATED
    ablation = ablate_by_role(model, task, kinds=("mean",), n=n, seed=run.spec.seed)
    return {
        "metrics": run.metrics(),
        **evaluate(run, None),
        "ablation": ablation,
        "examples": with_roles(patterns(model, task, example(task)), roles_of(ablation)),
    }


def evaluate(run: Run, n_samples: int | None) -> dict[str, xr.Dataset]:
    """Squared errors by part of the answer, on sampled sequences, beside the exact predictors."""
    n = n_samples or plain.N_SEQUENCES
    return {"evaluation": evaluate_splits(run.hooked(), run.spec.task, n_samples=n, seed=run.spec.seed).mean("pos")}


def evaluation_tables(results: Results) -> list[Table]:
    """The errors of the model and of the exact predictors, and the distances between them."""
    evaluation = results["evaluation"]
    names = evaluation.reference.values.tolist() if "reference" in evaluation.coords else []
    cells: dict[str, list[xr.DataArray]] = {
        "loss": [evaluation.loss, *(evaluation.floor.sel(reference=name) for name in names)],
        "distance": [evaluation.distance.sel(reference=name) for name in names],
    }
    titles = {
        "loss": "squared error, mean [range] over seeds; the exact predictors beside the model",
        "distance": "mean squared distance of the model from every exact predictor",
    }
    words = [name.replace("_", " ") for name in names]
    return [
        Table(
            name=name,
            title=f"{titles[name]}, {evaluation.attrs['sequences']}",
            header=["sequences", "part", *(["model"] if name == "loss" else []), *words],
            rows=[
                [split, part, *(mean_with_range(column.sel(split=split, part=part)) for column in columns)]
                for split in evaluation.split.values.tolist()
                for part in evaluation["part"].values.tolist()
            ],
            n_text=2,
        )
        for name, columns in cells.items()
        if columns
    ]


def tables(results: Mapping[str, Results]) -> list[Table]:
    """Squared errors on unseen sequences of every configuration, by part, and the losses at the last step."""
    parts = list(dict.fromkeys(str(p) for result in results.values() for p in result["evaluation"]["part"].values))
    header = ["configuration", *parts, "loss, training", "loss, unseen"]
    rows = []
    for label, result in results.items():
        unseen, last = result["evaluation"].loss.sel(split="test"), result["metrics"].isel(step=-1)
        cells = [
            mean_with_range(unseen.sel(part=part), ".3f") if part in unseen["part"].values else "–" for part in parts
        ]
        rows.append([label, *cells, mean_with_range(last.train_loss), mean_with_range(last.test_loss)])
    title = "What was learned: mean [range] over seeds; squared error on unseen sequences, and at the last step"
    return [Table(name="learned", title=title, header=header, rows=rows)]


def page(page: Page, results: Mapping[str, Results]) -> None:
    """The sections of the page."""
    learned_section(page, results)
    later_sections(page, results)


def later_sections(page: Page, results: Mapping[str, Results]) -> None:
    """Sections on the loss without each part, training, and attention on one sequence."""
    for section in (plain.ablation_section, plain.training_section, plain.view_section):
        section(page, results)


def learned_section(page: Page, results: Mapping[str, Results]) -> None:
    """A section on the skills of every configuration, with the exact predictors beside it."""
    plain.add_configuration_tables(page, results, tables, evaluation_tables)


def example(task: Task) -> Batch:
    """An unseen sequence, the same for every seed."""
    return task.sample(1, split="test", generator=generator(0, "example"))


def parse(task: Task, text: str) -> Batch:
    """A sequence in the task's form, or an unseen one by its number; raises InputError where the text is refused."""
    if isinstance(task, plain.Parses):
        return task.parse(text)
    if not text.strip().isdecimal():
        raise InputError(
            f"a sequence of {task.name} consists of vectors, which cannot be typed; take an unseen one by its number, "
            f"0, 1, 2, ...; got {text!r}"
        )
    return task.sample(1, split="test", generator=generator(int(text), "example"))


def predict(
    model: HookedModel, task: Any, batch: Batch, *, knows: Callable[[Any, Batch], Sequence[str]] | None = None
) -> xr.Dataset:
    """Squared errors by part of the answer at every position of one sequence that has one, beside the exact predictors.

    `knows` gives the task's knowledge about every position, in words.
    """
    found = evaluate_model(model, task, batch)
    if knows is None:
        return found
    words = list(knows(task, batch))
    return found.assign_coords({KNOWN: ("pos", [words[pos] for pos in found.pos.values.tolist()])})


def prediction_tables(result: xr.Dataset) -> list[Table]:
    """One row per position and part: the squared error of the model, and the exact predictor that it is nearest to."""
    known = KNOWN in result.coords
    rows = []
    for i, position in enumerate(axis_labels(result, "pos")):
        for part in result["part"].values.tolist():
            at = result.isel(pos=i).sel(part=part)
            nearest = at.distance.idxmin("reference").item() if "distance" in at else ""
            row = [position, part, *([str(at[KNOWN].item())] if known else []), str(nearest).replace("_", " ")]
            cells = [at.loss, *([at.distance.min()] if "distance" in at else [])]
            rows.append([*row, *(format_rounded(float(cell), ".3f") for cell in cells)])
    header = ["position", "part", *(["what the task knows"] if known else []), "nearest exact predictor"]
    numbers = ["squared error", *(["distance from that"] if "distance" in result else [])]
    title = "what is due at each position, and how far the model is from it"
    return [Table(name="predictions", title=title, header=[*header, *numbers], rows=rows, n_text=len(header))]


def prediction_figure(result: xr.Dataset) -> go.Figure:
    """The squared error of every part at every position."""
    return heatmaps({"squared error of the model": result.loss}, low=0)


VECTORS = replace(
    plain.PLAIN,
    analyse=examine,
    page=page,
    tables=tables,
    evaluate=evaluate,
    evaluation_tables=evaluation_tables,
    parse=parse,
    predict=predict,
    prediction_tables=prediction_tables,
    prediction_figure=prediction_figure,
    prediction_caption="Squared error of the model at every position where an answer is due, by part of the answer.",
    patterns=patterns,
    example=example,
)
