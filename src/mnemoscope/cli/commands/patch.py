"""`mnemoscope patch`."""

from functools import partial

import xarray as xr

from mnemoscope.analyses.dynamics.trajectories import last_roles
from mnemoscope.analyses.patching.activations import effects, patch
from mnemoscope.analyses.roles import by_role
from mnemoscope.cli.analysis import Results, Shown, Table, corruption, each_configuration, publish
from mnemoscope.cli.analysis_options import Patch
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.metrics import METRICS
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.seeding import generator
from mnemoscope.models.run import Run
from mnemoscope.viz.patching import patching_figure, patching_header, patching_rows

NOTES = (
    "An activation of one run in place of that of the other. Noising puts corrupted activations into the clean run: "
    "necessity is the share of the difference between clean and corrupted prompts that is lost. Denoising puts clean "
    "ones into the corrupted run: sufficiency is the share that comes back. Each is a ratio of means over prompts. The "
    "first row is the difference itself: below 0 the model prefers the other answer, and shares are of that.",
    "This shows which activations carry what the two prompts differ in. What both have in common is left alone, and "
    "parts that can stand in for each other look unneeded. A dash: clean and corrupted are not told apart.",
)

_METRICS = {metric.name: metric for metric in METRICS}


def run(options: Patch) -> None:
    """Print necessity and sufficiency of every cell for each skill, and write arrays, tables and figures."""
    in_range("--n", options.n, 2, float("inf"))
    for metric in options.metrics:
        one_of("--metrics", metric, _METRICS)
    analyse = partial(patch_run, options=options)
    for label, runs, results in each_configuration(options.runs, analyse, jobs=options.jobs):
        if all(bool(result.ratio.isnull().all()) for result in results.values()):
            raise InputError(
                f"no run of {label} tells clean from corrupted sequences apart: there is nothing to be carried; take "
                "another --corruption, --metrics, --step or other runs"
            )
        publish("patch", label, runs, results, _shown(results, options), options.out)


def patch_run(run: Run, options: Patch) -> dict[str, xr.Dataset]:
    """Values and effects of the sweep on one run, a dataset a skill; heads by role."""
    task, seed = run.spec.task, run.spec.seed
    kind = corruption(task, options.corruption)
    batch = task.monitor(options.n, split=options.split, generator=generator(seed, "patch", options.split))
    model, named = run.model(options.step), last_roles(run) if "head" in options.over else None
    masks, results = task.skills(batch), {}
    for skill in options.skills or masks:
        one_of("--skills", skill, masks)
        pairs = PromptPairs.from_task(task, batch, kind=kind, skill=skill, seed=seed)
        metrics = [_METRICS[name] for name in options.metrics]
        values = patch(model, pairs, kind=options.kind, over=options.over, metrics=metrics)
        result = xr.merge([values, effects(values, refuse=False)], combine_attrs="override")
        results[f"patch_{skill}"] = result if named is None else by_role(result, named)
    return results


def _shown(results: Results, options: Patch) -> Shown:
    found = {name.removeprefix("patch_"): result for name, result in results.items()}
    first = next(iter(found.values()))
    tables, figures = [], []
    for metric in options.metrics:
        title = f"{metric} under patches of {options.kind}, {first.attrs['pairs']}"
        header, rows = patching_header(found), patching_rows(found, metric)
        tables.append(Table(name=metric, title=title, header=header, rows=rows))
        figures.append((f"{title}, mean over seeds.", patching_figure(found, metric)))
    return Shown(tables=tables, figures=figures, notes=NOTES)
