"""The report on runs of any task: skills and their parts, training, one sequence; entries of other tasks use its
pieces.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
import xarray as xr

from mnemoscope.analyses.attention import named_patterns
from mnemoscope.analyses.evaluation import evaluate_splits
from mnemoscope.analyses.predictions import UNKNOWN
from mnemoscope.analyses.predictions import predict as top_predictions
from mnemoscope.analyses.roles import ablate_by_role, last_roles, role_prompts, roles_of, with_roles
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.protocols import HookedModel, Task, class_names
from mnemoscope.core.renamed import old_names
from mnemoscope.core.seeding import generator
from mnemoscope.models.run import Run
from mnemoscope.report.ablation import ablation_by_role, ablation_header, ablation_quantity, ablation_rows
from mnemoscope.report.curves import skill_curves
from mnemoscope.report.findings import describe_final_accuracy, describe_removal
from mnemoscope.report.guesses import CAPTION, KNOWN, guess_figure, guess_table, output_symbols, token_symbols
from mnemoscope.report.page import Page, attention_view
from mnemoscope.report.tables import Results, Table, mean_with_range, single_number
from mnemoscope.report.task_report import Opening, TaskReport

N_SEQUENCES = 512
"""Sequences that a run is evaluated on unless another number is asked for."""
N_ABLATED = 256
"""Sequences of each subgroup that parts are removed on, and whose means replace them."""
N_SHOWN = 64
"""Tokens of a view; later ones do not change what stands before them."""


@runtime_checkable
class Parses(Protocol):
    """A task that reads a sequence from a text."""

    def parse(self, text: str) -> Batch:
        """A batch of one sequence."""
        ...


# ---- what is taken of a run


def examine(run: Run) -> dict[str, xr.Dataset]:
    """Training, evaluation and ablation of skills, and attention on one sequence."""
    task, model = run.spec.task, run.hooked()
    needed, shown = without_parts(model, task, run.spec.seed), patterns(model, task, example(task))
    return {
        "metrics": run.metrics(),
        **evaluate(run, None),
        **needed,
        "examples": with_roles(shown, roles_of(needed["ablation"])) if needed else shown,
    }


def evaluate(run: Run, n_samples: int | None) -> dict[str, xr.Dataset]:
    """Accuracy and loss by skill, on sampled sequences."""
    n = n_samples or N_SEQUENCES
    return {"evaluation": evaluate_splits(run.hooked(), run.spec.task, by="skill", n_samples=n, seed=run.spec.seed)}


def without_parts(model: HookedModel, task: Task, seed: int) -> dict[str, xr.Dataset]:
    """Skills with one head or MLP at its mean; empty for a task without skills or with prompts of several lengths."""
    if not _has_roles(task, seed):
        return {}
    return {"ablation": ablate_by_role(model, task, kinds=("mean",), n=N_ABLATED, seed=seed)}


def roles(run: Run) -> dict[str, str]:
    """The names that `without_parts` gives to the parts of a run's last checkpoint, without the rest of it."""
    return last_roles(run, n=N_ABLATED) if _has_roles(run.spec.task, run.spec.seed) else {}


def _has_roles(task: Task, seed: int) -> bool:
    prompts = role_prompts(task, n=N_ABLATED, split="test", seed=seed)
    alike = len({batch.inputs.shape[1:] for batch in prompts}) == 1
    return alike and all(task.skills(batch) for batch in prompts[:2])


# ---- one sequence


def parse(task: Task, text: str) -> Batch:
    """A sequence in the task's form, or as numbers of tokens; raises InputError where the text is refused."""
    if isinstance(task, Parses):
        found = task.parse(text)
        if not isinstance(found, Batch):
            raise InputError(
                f"parse of the task {task.name} must return a Batch of one sequence; got {type(found).__name__}"
            )
        return found
    words = text.replace(",", " ").split()
    for word in words:
        one_of("a token", word, map(str, range(task.d_vocab)))
    in_range("the number of tokens", len(words), 1, task.n_ctx)
    tokens = torch.tensor([[int(word) for word in words]])
    if classes := class_names(task):  # nobody says which is right
        nowhere = torch.zeros_like(tokens, dtype=torch.bool)
        return Batch(inputs=tokens, targets=torch.zeros_like(tokens), scored=nowhere, classes=classes)
    following = torch.cat((tokens[:, 1:], torch.zeros_like(tokens[:, :1])), 1)
    return Batch(inputs=tokens, targets=following, scored=torch.arange(len(words))[None] < len(words) - 1)


def predict(
    model: HookedModel,
    task: Task,
    batch: Batch,
    *,
    reference: str | None = None,
    knows: Callable[[Any, Batch], Sequence[str]] | None = None,
) -> xr.Dataset:
    """The likeliest tokens after every token of one sequence, with their names.

    `reference` names an exact predictor that looks back only, shown beside the model. `knows` gives the task's
    knowledge about every position in words, empty where there is none. Where nothing is scored no following
    token is shown.
    """
    result = _scored_only(top_predictions(model, task, batch, reference=reference, everywhere=True), batch)
    known = {} if knows is None else {KNOWN: ("pos", list(knows(task, batch)))}
    classes = {"output": ("output_number", output_symbols(task))} if class_names(task) else {}
    return result.assign_coords({"symbol": ("token_number", token_symbols(task)), **classes, **known})


def _scored_only(predicted: xr.Dataset, batch: Batch) -> xr.Dataset:
    """Predictions on one sequence; what follows is unknown where nothing is scored, since targets there are dummies."""
    scored = xr.DataArray(batch.scored[0].tolist(), dims="pos", coords={"pos": predicted.pos})
    names = [str(name) for name in predicted.data_vars if str(name).endswith("p_following")]
    known = {name: predicted[name].where(scored) for name in names}
    return predicted.assign({"following": predicted.following.where(scored, UNKNOWN), **known})


def prediction_tables(result: xr.Dataset) -> list[Table]:
    """One row per position."""
    return [guess_table(result)]


def patterns(model: HookedModel, task: Task, batch: Batch) -> xr.Dataset:
    """The attention of every head on every sequence, with the names of the tokens."""
    return named_patterns(model, batch, token_symbols(task))


def example(task: Task) -> Batch:
    """The first tokens of an unseen sequence, the same for every seed."""
    batch = task.sample(1, split="test", generator=generator(0, "example"))
    first = slice(None, N_SHOWN)
    cut = {name: getattr(batch, name)[:, first] for name in ("inputs", "targets", "scored")}
    return replace(batch, **cut)


# ---- tables


def evaluation_tables(results: Results, dim: str = "skill") -> list[Table]:
    """Accuracy, loss and distance, each beside the exact predictors."""
    evaluation = results["evaluation"]
    title = f"mean [range] over seeds, {evaluation.attrs['sequences']}; the exact predictors beside the model"
    accuracy = _predictor_table(evaluation, dim, "accuracy", "best_accuracy", own=evaluation.accuracy)
    loss = _predictor_table(evaluation, dim, "loss", "floor", own=evaluation.loss)
    found = [replace(accuracy, title=f"accuracy, {title}"), replace(loss, title=f"loss in nats, {title}")]
    if "kl" in evaluation:
        title = "KL divergence (nats) from every exact predictor to the model"
        found.append(replace(_predictor_table(evaluation, dim, "kl", "kl"), title=title))
    return found


def _predictor_table(evaluation: xr.Dataset, dim: str, name: str, of: str, own: xr.DataArray | None = None) -> Table:
    """One row per split and group, for the model and for every exact predictor."""
    names = evaluation.reference.values.tolist() if of in evaluation else []
    header = [
        "sequences",
        dim.replace("_", " "),
        "n",
        *(["model"] if own is not None else []),
        *map(_readable_name, names),
    ]
    rows = []
    for split in evaluation.split.values:
        for group in evaluation[dim].values:
            place = {"split": split, dim: group}
            cells = [] if own is None else [own.sel(place)]
            cells += [evaluation[of].sel(place).sel(reference=reference) for reference in names]
            n = single_number(float(evaluation.n.sel(place).mean()), ".0f")
            rows.append([str(split), _readable_name(group), n, *map(mean_with_range, cells)])
    return Table(name=name, title="", header=header, rows=rows, n_text=2)


def _readable_name(name: str) -> str:
    return str(name).replace("_", " ")


def tables(results: Mapping[str, Results], dim: str = "skill") -> list[Table]:
    """Accuracy on unseen sequences of every configuration, and its losses."""
    groups = list(dict.fromkeys(str(g) for result in results.values() for g in result["evaluation"][dim].values))
    header = ["configuration", *map(_readable_name, groups), "loss, training", "loss, unseen"]
    rows = []
    for label, result in results.items():
        unseen, last = result["evaluation"].accuracy.sel(split="test"), result["metrics"].isel(step=-1)
        cells = [mean_with_range(unseen.sel({dim: g}), ".3f") if g in unseen[dim].values else "–" for g in groups]
        rows.append([label, *cells, mean_with_range(last.train_loss), mean_with_range(last.test_loss)])
    title = "What was learned: mean [range] over seeds; accuracy on unseen sequences, loss in nats at the last step"
    return [Table(name="learned", title=title, header=header, rows=rows)]


# ---- sections


def opening(result: Results) -> Opening:
    """The course of training, and the needs of every skill."""
    figures = [("Training: one line per seed.", skill_curves(result["metrics"]))]
    if "ablation" not in result:
        return Opening(finding=describe_final_accuracy(result["metrics"]), figures=figures)
    ablation = result["ablation"]
    needed = ("Removing one component: dots are seeds, bars their mean.", ablation_by_role(ablation))
    return Opening(
        finding=f"{describe_final_accuracy(result['metrics'])} {describe_removal(ablation)}", figures=[*figures, needed]
    )


def page(page: Page, results: Mapping[str, Results]) -> None:
    """The sections of the page."""
    for section in (learned_section, ablation_section, training_section, view_section):
        section(page, results)


def learned_section(page: Page, results: Mapping[str, Results], dim: str = "skill") -> None:
    """A section on what every configuration has learned, with the exact predictors beside it."""
    add_configuration_tables(page, results, partial(tables, dim=dim), partial(evaluation_tables, dim=dim))


def add_configuration_tables(
    page: Page,
    results: Mapping[str, Results],
    overview: Callable[[Mapping[str, Results]], list[Table]],
    of_each: Callable[[Results], list[Table]],
) -> None:
    """A section with the tables of all configurations together, and then of each."""
    page.section("What was learned")
    for table in overview(results):
        page.show(table)
    for label, result in results.items():
        page.heading(label)
        for table in of_each(result):
            page.show(table)


def ablation_section(page: Page, results: Mapping[str, Results]) -> None:
    """A section on what every skill loses without each part, for the configurations whose parts were removed."""
    found = {label: result["ablation"] for label, result in results.items() if "ablation" in result}
    if not found:
        return
    page.section("Removing one component")
    page.text(
        "Heads are named by what they are needed for, not by number, chosen on one half of the prompts; all numbers "
        "are from the other half. This shows what a skill needs, with the rest of the model as it is; it does not show "
        "what the component computes."
    )
    for label, ablation in found.items():
        page.heading(label)
        page.figure(ablation_by_role(ablation), "Dots are seeds, bars their mean; 'nothing' is the intact model.")
        title = f"{ablation_quantity(ablation).title.capitalize()}, mean [range] over seeds."
        page.table(ablation_header(ablation), ablation_rows(ablation), title)


def training_section(page: Page, results: Mapping[str, Results]) -> None:
    """The training curves."""
    page.section("Training")
    for label, result in results.items():
        page.heading(label)
        page.figure(skill_curves(result["metrics"]), "One line per seed.")


def view_section(page: Page, results: Mapping[str, Results]) -> None:
    """The attention of the first seed on one sequence."""
    page.section("Single sequences")
    page.text("Select a head to see it in full size; rows are queries, columns keys. Patterns are correlational.")
    for label, result in results.items():
        first = result["examples"].isel(seed=0)
        page.heading(f"{label}, seed {int(first.seed)}")
        attention_view(page, first.isel(example=0), "The start of an unseen sequence")


PLAIN = TaskReport(
    title="Trained models",
    analyse=examine,
    page=page,
    tables=tables,
    evaluate=evaluate,
    evaluation_tables=evaluation_tables,
    parse=parse,
    predict=predict,
    prediction_tables=prediction_tables,
    prediction_figure=guess_figure,
    prediction_caption=CAPTION,
    patterns=patterns,
    example=example,
    opening=opening,
)

__getattr__ = old_names(__name__)
