"""The report on runs of this system: the course under each condition, heads alone and together, wiring, subcircuits.

The first figure is the paper's Figure 5 over seeds: the loss over steps, with a line for the median and a band from the
lowest to the highest seed of each configuration. Losses are those that training went down, with its clamps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files

import plotly.graph_objects as go
import torch
import xarray as xr

from mnemoscope import REPORTS, Batch, HookedModel, InputError, PromptPairs, Run, generator
from mnemoscope.core import one_of
from mnemoscope.models import logged
from mnemoscope.report import (
    LAYOUT,
    Page,
    Results,
    Table,
    assign_colours,
    mean_with_range,
    trajectory_curves,
)
from mnemoscope.report import plain_report as plain
from mnemoscope.systems.induction_formation.analyses.courses import PLATEAU, change, plateau
from mnemoscope.systems.induction_formation.analyses.heads import STRONG, heads_alone, strengths
from mnemoscope.systems.induction_formation.analyses.subcircuits import SUBCIRCUITS
from mnemoscope.systems.induction_formation.analyses.tracking import trajectory
from mnemoscope.systems.induction_formation.analyses.wiring import wiring
from mnemoscope.systems.induction_formation.tasks import FewShot

N_SEQUENCES = 256


def examine(run: Run) -> dict[str, xr.Dataset]:
    """Results as for any task of tokens, heads and wiring of the model without its clamps, and what was tracked."""
    task, model = run.spec.task, run.hooked()
    assert isinstance(task, FewShot)
    batch = task.sample(N_SEQUENCES, split="test", generator=generator(run.spec.seed, "report"))
    pairs = PromptPairs.from_task(task, batch, kind="swap_exemplars", seed=run.spec.seed)
    tracked = run.trajectory()
    return {
        **plain.examine(run),
        "heads": xr.merge([strengths(model, batch), heads_alone(model, batch)], combine_attrs="drop"),
        "wiring": wiring(model, pairs),
        **({} if tracked is None else {"trajectory": tracked}),
    }


def course_figure(courses: Mapping[str, xr.DataArray]) -> go.Figure:
    """Losses over (seed, step) by configuration: the median over seeds, and a band from the lowest to the highest.

    Steps are on a logarithmic axis, since the changes lie up to a factor of twenty apart; it has no step 0.
    """
    figure = go.Figure()
    for (name, values), colour in zip(courses.items(), assign_colours(courses).values(), strict=True):
        values = values.sel(step=values.step > 0)
        steps = values.step.values
        low, middle, high = (values.quantile(q, "seed").values for q in (0, 0.5, 1))
        band = {"x": [*steps, *steps[::-1]], "y": [*high, *low[::-1]]}
        shade = {"fill": "toself", "fillcolor": colour, "opacity": 0.15, "line": {"width": 0}, "hoverinfo": "skip"}
        figure.add_trace(go.Scatter(**band, **shade, legendgroup=name, showlegend=False))
        line = {"color": colour, "width": 2}
        hover = f"{name}: %{{y:.3f}} at step %{{x}}<extra></extra>"
        shown = {"name": name, "legendgroup": name, "line": line, "hovertemplate": hover, "mode": "lines"}
        figure.add_trace(go.Scatter(x=steps, y=middle, **shown))
    figure.add_hline(y=PLATEAU, line={"dash": "dot", "color": "#5b6577"}, annotation_text="log 2")
    figure.update_yaxes(title="loss (nats)", range=[0, 2 * PLATEAU]).update_xaxes(title="step", type="log", dtick="D2")
    return figure.update_layout(**LAYOUT, height=520)


def course_table(results: Mapping[str, Results]) -> Table:
    """The step of the change, the seeds in which it came, and the share of the plateau."""
    rows = []
    for label, result in results.items():
        each = logged(result["metrics"], "test_loss")
        seeds = each.seed.values.tolist()
        steps = xr.DataArray([change(each.sel(seed=seed)) for seed in seeds], coords={"seed": seeds})
        came = steps <= float(each.step[-1])
        shares = xr.DataArray([plateau(each.sel(seed=seed))["share"] for seed in seeds], coords={"seed": seeds})
        step = mean_with_range(steps[came], ".0f") if came.any() else "never"
        rows.append([label, f"{int(came.sum())} of {len(seeds)}", step, mean_with_range(shares, ".2f")])
    title = "Change: the step from which the loss stays at half of log 2 or below; mean [range] over seeds"
    return Table(
        name="courses",
        title=title,
        header=["configuration", "seeds with a change", "step", "plateau's share"],
        rows=rows,
    )


def head_table(results: Mapping[str, Results]) -> Table:
    """Numbers of induction heads, what the best can do alone, what is lost without one, and the wiring."""
    rows = []
    for label, result in results.items():
        heads, wired = result["heads"], result["wiring"]
        alone, without = (heads.accuracy.sel(kept=kept) for kept in ("alone", "without"))
        cells = [
            ((heads.induction >= STRONG).sum("head"), ".1f"),
            (alone.max("head"), ".2f"),
            (heads.all_accuracy - without.min("head"), ".2f"),
            (wired.n_previous, ".1f"),
            (wired.n_induction, ".1f"),
        ]
        rows.append([label, *(mean_with_range(values, form) for values, form in cells)])
    header = ["configuration", f"heads above {STRONG:g}", "best alone", "lost without one", "fed by", "feeds"]
    title = "Heads of layer 1, without clamps; fed by, feeds: effective numbers of heads; mean [range] over seeds"
    return Table(name="heads", title=title, header=header, rows=rows)


def tables(results: Mapping[str, Results]) -> list[Table]:
    """The tables of any task of tokens, courses and heads."""
    return [*plain.tables(results), course_table(results), head_table(results)]


def page(page: Page, results: Mapping[str, Results]) -> None:
    """The sections of the page."""
    course_section(page, results)
    plain.learned_section(page, results)
    head_section(page, results)
    for section in (progress_section, plain.ablation_section, plain.training_section, plain.view_section):
        section(page, results)


def course_section(page: Page, results: Mapping[str, Results]) -> None:
    """The loss under each condition in one figure."""
    page.section("The course under each condition")
    page.text(
        "Parts of the circuit are held at their ideal form from the first step, or heads are removed. Losses are on "
        "unseen labellings, with the clamps of training: what training goes down."
    )
    courses = {label: logged(result["metrics"], "test_loss") for label, result in results.items()}
    page.figure(
        course_figure(courses), "Lines are medians over seeds, bands reach from the lowest seed to the highest."
    )
    page.show(course_table(results))


def head_section(page: Page, results: Mapping[str, Results]) -> None:
    """Induction heads alone and together, and their wiring."""
    page.section("Heads alone and together")
    page.text(
        "A head of layer 1 is strong if it attends from the query to the right label more than to the other. Heads are "
        "removed by their mean. Wiring is read from scores: which heads of layer 0 move them. All is measured without "
        "the clamps of training."
    )
    page.show(head_table(results))


def progress_section(page: Page, results: Mapping[str, Results]) -> None:
    """Copy, routing and match along checkpoints."""
    followed = {label: result["trajectory"] for label, result in results.items() if "trajectory" in result}
    if not followed:
        return
    page.section("Progress of copy, routing and match")
    page.text(
        "Copy: from the attended label to the output; routing: previous-token attention; match: from the query to the "
        "label that holds its exemplar. Each from 0 to 1, measured on checkpoints without clamps."
    )
    for label, tracked in followed.items():
        page.heading(label)
        strong = [str(name) for name in tracked.data_vars if str(name).startswith("strength_")]
        panels = {"progress of subcircuits": SUBCIRCUITS, "strength of heads of layer 1": strong}
        page.figure(trajectory_curves(tracked, panels), "One line per seed.")


def parse(task: FewShot, text: str) -> Batch:
    """One sequence as typed, such as `x1 y2 x3 y1 x3`; raises InputError otherwise."""
    words = text.replace(",", " ").split()
    if len(words) != task.n_ctx:
        raise InputError(f"a sequence has {task.n_ctx} tokens; got {text!r}; type them like x1 y2 x3 y1 x3")
    numbers = {symbol: token for token, symbol in enumerate(task.symbols)}
    for word in words:
        one_of("a token", word, task.symbols)
    tokens = torch.tensor([numbers[word] for word in words])
    classes, labels, query = tokens[0:4:2] - task.n_labels, tokens[1:4:2], tokens[4] - task.n_labels
    if not (tokens[0:5:2] >= task.n_labels).all() or not (labels < task.n_labels).all() or query not in classes:
        raise InputError(f"a sequence is class label class label class, the last class shown before; got {text!r}")
    if classes[0] == classes[1] or labels[0] == labels[1]:
        raise InputError(f"the two classes differ, and so do the two labels; got {text!r}")
    return task.batch(classes[None], labels[None], (query == classes[1]).long()[None])


def known_of(task: FewShot, batch: Batch) -> Sequence[str]:
    """The answer and whether the labelling trains, at the query."""
    known = {name: int(values[0]) for name, values in batch.latents.items()}
    trains = ""
    if task.split_seed is not None:
        trains = ", trains" if task.trained()[task.labelling_number(batch)[0]] else ", held out"
    words = [""] * batch.inputs.shape[1]
    words[-1] = f"as label{known['which'] + 1}{trains}"
    return words


def predict(model: HookedModel, task: FewShot, batch: Batch) -> xr.Dataset:
    """The likeliest labels, beside the answer."""
    return plain.predict(model, task, batch, knows=known_of)


def example_words(task: FewShot, batch: Batch) -> tuple[str, str]:
    """The sequence, and its answer."""
    return " ".join(task.symbol(int(token)) for token in batch.inputs[0]), task.symbol(int(batch.targets[0, -1]))


def ideal_parts() -> str:
    """The script with which the live explorer computes the ideal parts."""
    return (files("mnemoscope.systems.induction_formation") / "ideal_parts.js").read_text(encoding="utf-8")


REPORTS.add(
    FewShot.name,
    replace(
        plain.PLAIN,
        title="What an induction head needs",
        about=(
            "Two classes are shown, each with a label that is drawn anew for every sequence, and then one of the two. "
            "The answer is its label."
        ),
        example_words=example_words,
        analyse=examine,
        page=page,
        tables=tables,
        parse=parse,
        predict=predict,
        trajectory=trajectory,
        ideal_parts=ideal_parts,
    ),
)
