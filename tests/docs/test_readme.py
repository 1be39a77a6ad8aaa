"""The README is one screen, and what it and the page of commands show is run or taken from the program."""

import contextlib
import io
import re
import shlex
from collections import Counter
from pathlib import Path

import plotly.graph_objects as go
import pytest

import mnemoscope.claims.testing.cases  # noqa: F401 (pytester forgets what its sessions import)
from mnemoscope.claims import recorded_verdicts
from mnemoscope.claims.claim import CLAIMS
from mnemoscope.cli.command import commands, split_command
from mnemoscope.cli.parse import parse
from mnemoscope.core.presets import SYSTEMS
from mnemoscope.systems.tiny_recall.constructed import dissociated
from tests.claims.testing.planted import N_VALUES, plant

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
COMMAND_LINE = (ROOT / "docs" / "command_line.md").read_text()
MOST_LINES = 90
OUTCOMES = ("SUPPORTED", "REFUTED", "MIXED", "INCONCLUSIVE", None)
"""As the columns of the table; none: not tried."""


def test_the_readme_is_one_screen():
    assert len(README.splitlines()) <= MOST_LINES


def test_the_example_prints_what_stands_below_it():
    [(code, expected)] = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.S)
    assert len(code.splitlines()) == 7
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert printed.getvalue().split() == expected.split()


def verdict_rows() -> list[str]:
    """A row for each system with claims of its own, by name."""
    verdicts = recorded_verdicts()
    counts: dict[str, Counter] = {}
    for id in CLAIMS.names():
        outcome = verdicts[id].outcome if id in verdicts else None
        counts.setdefault(CLAIMS.get(id).system, Counter())[outcome] += 1
    rows = []
    for name in sorted(SYSTEMS.names()):
        if name in counts:
            numbers = " | ".join(str(counts[name][outcome] or "") for outcome in OUTCOMES)
            rows.append(f"| {name} | {SYSTEMS.get(name).summary} | {numbers} |".replace("  ", " "))
    return rows


def test_the_table_of_verdicts_is_that_of_the_registry():
    ours = [row for row in verdict_rows() if row.split()[1] in README]
    shown = [line for line in README.splitlines() if line.startswith("| ")][2:]
    assert len(ours) >= 9
    assert shown == ours


def test_the_first_commands_of_the_commands_page_run_in_python(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = '{"recipe.n_steps": 20, "recipe.warmup_steps": 2, "recipe.batch_size": 64}'
    shown = []
    monkeypatch.setattr(go.Figure, "show", lambda figure: shown.append(figure))
    example = re.findall(r"```python\n(.*?)```", COMMAND_LINE, re.S)[0]
    exec(example.replace("seed=0)", f"seed=0, changes={small})"), {})
    assert len(shown) == 1
    assert (tmp_path / "runs" / "v3-quick" / "seed-00" / "done").exists()


def test_the_claim_on_recall_runs_as_a_unit_test(pytester, tmp_path):
    page = (ROOT / "docs" / "unit_tests.md").read_text()
    [claim] = [code for code in re.findall(r"```python\n(.*?)```", page, re.S) if "test_recall_needs" in code]
    plant(tmp_path, {0: dissociated(N_VALUES)})
    pytester.makepyfile(claim)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", f"--mnemoscope-runs={tmp_path}")
    result.assert_outcomes(passed=1)
    assert len(claim.splitlines()) < 20


LINES = [
    line.split("#")[0].strip()
    for page in (README, COMMAND_LINE)
    for block in re.findall(r"```console\n(.*?)```", page, re.S)
    for line in re.findall(r"^mnemoscope .*$", block, re.M)
]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.every_case
def test_the_commands_are_understood(line):
    command, words = split_command(shlex.split(line)[1:])
    assert isinstance(parse(command, words), commands()[command].options)


def test_there_are_commands_and_a_picture():
    assert len(LINES) >= 20
    assert (ROOT / "docs" / "images" / "heads.png").stat().st_size > 10_000
