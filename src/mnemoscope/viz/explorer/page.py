"""The page of the live explorer: weights, sequences and scripts in one file."""

import json
import zlib
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

from mnemoscope.core.errors import InputError, fits
from mnemoscope.models.run import Run
from mnemoscope.viz.explorer.content import run_content
from mnemoscope.viz.explorer.packing import Packer
from mnemoscope.viz.explorer.scripts import script
from mnemoscope.viz.page import Page
from mnemoscope.viz.reporting import report_of

MAX_BYTES = 64_000_000
"""Of a page; a browser opens larger ones, but takes its time."""
_LEAD = (
    "The model runs in this page: change the sequence, switch parts off, set attention, patch from the other sequence, "
    "and see what it says then. Nothing leaves the page. What holds for one sequence need not hold for others."
)
_STATUS = (
    "The explorer has not started: the page is damaged, or scripts are switched off. Write it anew with "
    "`mnemoscope explore`, and open it in a browser of these years."
)


def explore(runs: Run | Sequence[Run], *, state: str = "") -> Page:
    """A page in which the models of some runs can be used: all their checkpoints, and the forward pass.

    Args:
        runs: One or several, of tasks with tokens; models of up to a million parameters.
        state: What stands after the # in the address of such a page: it opens in that state.

    Returns:
        The page; `.html()` is the text of the file, and a notebook shows it.

    Raises:
        InputError: There is no run, a run has no checkpoint or a model that the page cannot run, or the page would be
            too large.
    """
    runs = [runs] if isinstance(runs, Run) else list(runs)
    if not runs:
        raise InputError("explore needs at least one run; got none")
    packer = Packer()
    contents = [run_content(run, packer) for run in runs]
    data = _json({"tensors": packer.tensors, "runs": contents})
    fits("the page", len(data), MAX_BYTES, "take fewer runs, or runs with fewer checkpoints")
    entries = {run.spec.task.name: report_of(run.spec.task).explorer for run in runs}
    guests = "".join(f"{_json(name)}: {source().strip().rstrip(';')},\n" for name, source in entries.items() if source)
    opened = f"if (!location.hash) location.hash = {_json(state)};\n" if state else ""
    program = f"{script('app')}\n{opened}globalThis.explorer = start({{\n{guests}}});\n".replace(
        "</script", "<\\/script"
    )
    title = " and ".join(dict.fromkeys(run.label for run in runs))
    seeds = f", seed {runs[0].spec.seed}" if len(runs) == 1 else ""
    page = Page(f"{title}{seeds}", _LEAD, style=(files("mnemoscope.viz.explorer") / "explorer.css").read_text())
    page.block(
        f'<p id="explorer-status" class="warn">{escape(_STATUS)}</p><div id="explorer"></div>'
        f'<script type="application/json" id="explorer-data" data-check="{zlib.crc32(data.encode())}">{data}</script>'
        f'<script type="module">\n{program}</script>'
    )
    return page


def _json(value: Any) -> str:
    """JSON that can stand inside a script: nothing in it ends the script or starts a comment."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
