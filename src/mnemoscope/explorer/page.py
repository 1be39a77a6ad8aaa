"""The page of the live explorer: weights, sequences and scripts in one file; and the choice of models beside a report.

The page's JavaScript is ES modules of one idea each, put one after the other into one script: a browser that opens a
page from disk loads no other file, so there is nothing to import from. Tools read the modules as such. In the page each
comes once, after those that it imports, without `export` and `import`. Names at the top of a module are therefore names
of the whole script; two that are equal are an error in every browser.
"""

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from typing import Any, Literal

import xarray as xr
from markupsafe import Markup

from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.protocols import HookedModel, reads_vectors
from mnemoscope.explorer.clamps import without_clamps
from mnemoscope.explorer.content import SelectedRun, Sequences, model_content, run_content, subject_content
from mnemoscope.explorer.packing import Packer, check_size, checkpoint_bytes, page_configuration
from mnemoscope.explorer.record import PageRecord
from mnemoscope.models.run import Run
from mnemoscope.models.subjects import Subject
from mnemoscope.report.page import Page
from mnemoscope.report.tables import Results
from mnemoscope.report.task_report import REPORTS, TaskReport, group_by_report

MAX_CHECKPOINTS = 10_000
_LEAD = (
    "The model runs in this page: change the sequence, switch parts off, set attention, patch from the other sequence, "
    "and see what it says then. Nothing leaves the page. What holds for one sequence need not hold for others."
)


@check_arguments
def explore(
    models: Run | Sequence[Run] | Subject | HookedModel,
    sequences: Sequences | None = None,
    *,
    symbols: Sequence[str] | None = None,
    pos: int | Sequence[int] | None = None,
    checkpoints: int | None = None,
    state: str = "",
) -> Page:
    """A page in which models can be used: their weights, all checkpoints of runs, and the forward pass.

    `.html()` of the page is the text of the file, and a notebook shows it. Raises InputError where there is no run, a
    run has no checkpoint, or the page cannot run a model or would be too large; also where sequences do not fit the
    model or are given with a task.

    Args:
        models: One or several runs of tasks with tokens; or a subject, a model with its task; or any other hooked
            model. At most a million parameters. Features of its dictionaries (`ms.with_dictionaries`,
            `ms.models.run_with_dictionaries`) stand beside the neurons. The page of a run that was trained with
            clamps has a switch for them; one from `with_clamps` opens with them.
        sequences: For a model without a task, and only there: tokens (batch, pos), or a batch, of one length. Means are
            taken over the first 256 (fewer where they are long).
        symbols: The name of every token of such a model; None: as the batch calls them, else their numbers.
        pos: Positions, negative ones from the end, at which its predictions are read; None: where the batch is scored,
            for tokens the last.
        checkpoints: Most checkpoints of every run, evenly apart in their order, the last among them; None: all.
        state: The text after the # in the address of such a page: it opens in that state.

    >>> page = ms.explore(model, batch)
    >>> len(page.html()) > 100_000
    True
    """
    packer = Packer()
    if checkpoints is not None:
        in_range("checkpoints", checkpoints, 1, MAX_CHECKPOINTS)
    if not isinstance(models, Run | Subject | Sequence):
        if sequences is None:
            raise InputError("a model without a task needs sequences: ms.explore(model, sequences); got none")
        return _page(packer, [model_content(models, sequences, packer, symbols=symbols, pos=pos)], state)
    if any(given is not None for given in (sequences, symbols, pos)):
        raise InputError("sequences, symbols and pos are for a model without a task; runs and subjects have them")
    if isinstance(models, Subject):
        return _page(packer, [subject_content(models, packer)], state)
    if isinstance(models, str):
        raise InputError(f"explore takes runs or a model; got {models!r}: open it with ms.open_run")
    runs = [models] if isinstance(models, Run) else list(models)
    if not runs:
        raise InputError("explore needs at least one run; got none")
    for run in runs:
        if not isinstance(run, Run):
            raise InputError(f"explore takes one model or several runs; got {run!r} among several")
    clamped = any(without_clamps(run) is not run for run in runs)
    opened = state or ("clamps=with" if clamped else "")
    return runs_page([SelectedRun(run=run, n_checkpoints=checkpoints) for run in runs], opened)


def runs_page(taken: Sequence[SelectedRun], state: str = "") -> Page:
    """The page of some runs, each with its chosen number of checkpoints."""
    packer = Packer()
    return _page(packer, [run_content(one, packer) for one in taken], state)


def _page(packer: Packer, contents: Sequence[PageRecord], state: str) -> Page:
    data = _json({"tensors": packer.tensors, "runs": [asdict(content) for content in contents]})
    check_size(len(data))
    opened = f"if (!location.hash) location.hash = {_json(state)};\n" if state else ""
    program = (
        f"{module_source('app')}\n{opened}globalThis.explorer = start({{\n{_guest_scripts(contents, 'explorer')}}}, "
        f"{{\n{_guest_scripts(contents, 'ideal_parts')}}});\n".replace("</script", "<\\/script")
    )
    title = " and ".join(dict.fromkeys(content.label for content in contents))
    seed = contents[0].seed
    seeds = f", seed {seed}" if len(contents) == 1 and seed is not None else ""
    page = Page(
        f"{title}{seeds}", _LEAD, style=(files("mnemoscope.explorer") / "explorer.css").read_text(encoding="utf-8")
    )
    page.write(
        "explorer/explorer.html.jinja",
        check=zlib.crc32(data.encode()),
        data=Markup(data),
        program=Markup(f"\n{program}"),
    )
    return page


def _guest_scripts(contents: Sequence[PageRecord], entry: Literal["explorer", "ideal_parts"]) -> str:
    """The scripts of one kind that tasks have for the page, by the name of the task."""
    names = dict.fromkeys(content.task.name for content in contents if content.task)
    known = REPORTS.names()
    entries = {name: getattr(REPORTS.get(name), entry) for name in names if name in known}
    return "".join(f"{_json(name)}: {source().strip().rstrip(';')},\n" for name, source in entries.items() if source)


def _json(value: Any) -> str:
    """JSON that can stand inside a script: nothing in it ends the script or starts a comment."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


_IMPORT = re.compile(r'^import \{[^}]*\} from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=const |function\*? |class )", re.MULTILINE)


def module_source(*names: str) -> str:
    """The source of modules of `explorer/js` (without the ending) and of all that they import, as one script."""
    sources: dict[str, str] = {}
    for name in names:
        _add_module(name, sources)
    return "\n".join(sources.values())


def _add_module(name: str, sources: dict[str, str]) -> None:
    """Add a module after those that it imports."""
    if name in sources:
        return
    source = (files("mnemoscope.explorer") / "js" / f"{name}.js").read_text(encoding="utf-8")
    for imported in _IMPORT.findall(source):
        _add_module(imported, sources)
    sources[name] = _EXPORT.sub("", _IMPORT.sub("", source))


WEIGHT_BYTES = 24_000_000
"""Bound on all checkpoints together, unless the last ones alone take more."""


def first_seeds(
    runs: Sequence[Run], parts: Sequence[tuple[TaskReport, Mapping[str, Results]]]
) -> tuple[list[SelectedRun], dict[str, InputError]]:
    """The models of tokens that the page takes, and for each other configuration the reason why it is left out."""
    results = {label: result for _, each in parts for label, result in each.items()}
    fitting: dict[str, tuple[Run, int]] = {}
    refused = {}
    for _, groups in group_by_report(runs):
        for label, (run, *_) in groups.items():
            model = run.hooked()
            if reads_vectors(model):
                continue
            try:
                page_configuration(model)
            except InputError as refusal:
                refused[label] = refusal
            else:
                fitting[label] = run, checkpoint_bytes(model)
    taken = [
        SelectedRun(
            run=run,
            n_checkpoints=max(1, WEIGHT_BYTES // len(fitting) // n_bytes),
            removed=_removal_by_role(results[label.removesuffix(run.view)], run.spec.seed),
        )
        for label, (run, n_bytes) in fitting.items()
    ]
    return taken, refused


def _removal_by_role(result: Results, seed: int) -> xr.Dataset | None:
    """The measurements without each part, by role; None: nothing that the page can use."""
    found = result.get("ablation")
    if found is None or "component" not in found.coords or "mean" not in found.get("kind", ()):
        return None
    return found.sel(seed=seed)
