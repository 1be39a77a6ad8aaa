"""The page of the live explorer: weights, sequences and scripts in one file."""

import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from importlib.resources import files
from typing import Any

from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.protocols import HookedModel
from mnemoscope.explorer.content import Taken, run_content, subject_content
from mnemoscope.explorer.given import Sequences, model_content
from mnemoscope.explorer.packing import Packer, check_size
from mnemoscope.explorer.record import Record
from mnemoscope.explorer.scripts import script
from mnemoscope.models.run import Run
from mnemoscope.models.subjects import Subject
from mnemoscope.report.page import Page
from mnemoscope.report.task_report import REPORTS

MAX_CHECKPOINTS = 10_000
_LEAD = (
    "The model runs in this page: change the sequence, switch parts off, set attention, patch from the other sequence, "
    "and see what it says then. Nothing leaves the page. What holds for one sequence need not hold for others."
)
_STATUS = (
    "The explorer has not started: the page is damaged, or scripts are switched off. Write it anew with "
    "`mnemoscope explore`, and open it in a browser of these years."
)


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
            model. At most a million parameters.
        sequences: For a model without a task, and only there: tokens (batch, pos), or a batch, of one length. Means are
            taken over the first 256 (fewer where they are long).
        symbols: The name of every token of such a model; None: as the batch calls them, else their numbers.
        pos: Positions, negative ones from the end, at which its predictions are read; None: where the batch is scored,
            for tokens the last.
        checkpoints: Most checkpoints of every run, evenly apart in their order, the last among them; None: all.
        state: The text after the # in the address of such a page: it opens in that state.
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
    runs = [models] if isinstance(models, Run) else list(models)
    if not runs:
        raise InputError("explore needs at least one run; got none")
    return runs_page([Taken(run=run, n_checkpoints=checkpoints) for run in runs], state)


def runs_page(taken: Sequence[Taken], state: str = "") -> Page:
    """The page of some runs, each with its chosen number of checkpoints."""
    packer = Packer()
    return _page(packer, [run_content(one, packer) for one in taken], state)


def _page(packer: Packer, contents: Sequence[Record], state: str) -> Page:
    data = _json({"tensors": packer.tensors, "runs": [asdict(content) for content in contents]})
    check_size(len(data))
    opened = f"if (!location.hash) location.hash = {_json(state)};\n" if state else ""
    program = f"{script('app')}\n{opened}globalThis.explorer = start({{\n{_guests(contents)}}});\n".replace(
        "</script", "<\\/script"
    )
    title = " and ".join(dict.fromkeys(content.label for content in contents))
    seed = contents[0].seed
    seeds = f", seed {seed}" if len(contents) == 1 and seed is not None else ""
    page = Page(f"{title}{seeds}", _LEAD, style=(files("mnemoscope.explorer") / "explorer.css").read_text())
    page.block(
        f'<p id="explorer-status" class="warn">{escape(_STATUS)}</p><div id="explorer"></div>'
        f'<script type="application/json" id="explorer-data" data-check="{zlib.crc32(data.encode())}">{data}</script>'
        f'<script type="module">\n{program}</script>'
    )
    return page


def _guests(contents: Sequence[Record]) -> str:
    """The scripts that tasks have for the page, by the name of the task."""
    names = dict.fromkeys(content.task.name for content in contents if content.task)
    known = REPORTS.names()
    entries = {name: REPORTS.get(name).explorer for name in names if name in known}
    return "".join(f"{_json(name)}: {source().strip().rstrip(';')},\n" for name, source in entries.items() if source)


def _json(value: Any) -> str:
    """JSON that can stand inside a script: nothing in it ends the script or starts a comment."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
