"""The way from a paper's sentence to a verdict: each command in the order of the page, and every row of refusals."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from mnemoscope.claims.claim import Claim, Gate, controls, table
from mnemoscope.claims.entry import read_entry
from mnemoscope.claims.explanation import Explanation, Quantity
from mnemoscope.claims.registration import REGISTERED, register, registration
from mnemoscope.claims.standing import standing
from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import Configuration
from tests.support import MINUTES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "paper_to_claim.md"
PROJECT = ROOT / "docs" / "examples" / "half_the_heads"
ROWS = dict(re.findall(r"^\| ([^|]+?) \| (?:built|registered|judged) \| `(.+)` \|$", PAGE.read_text(), re.M))
"""Messages of the table by why a claim is refused."""


def measure(draw: int) -> dict[str, float]:
    return {"effect": 0.75}


def planted(positive: float = 1.0, negative: float = 0.0):
    cases = (
        table(name, {"draw": {"effect": value}}) for name, value in (("planted", positive), ("nothing there", negative))
    )
    return controls(**{kind: (each,) for kind, each in zip(("positive", "negative"), cases, strict=True)})


def claim(**changes) -> Claim:
    explained = Explanation(procedure="A draw.", quantities={"effect": Quantity(words="a number")}, margins="One half.")
    fields = {
        "id": "X",
        "statement": "s",
        "source": "made up",
        "quantifier": "most",
        "margin": 0.5,
        "bounds": (0.0, 1.0),
    }
    fields |= {"replicate": "draw", "measure": measure, "controls": planted(), "explanation": explained}
    return Claim(**{**fields, **changes})


def registered(one: Claim, place: Path) -> None:
    register([one], place)


def changed_later(place: Path) -> None:
    register([claim()], place)
    register([claim(margin=0.4)], place)


REFUSED = {
    "it has no margin": lambda place: claim(margin=None),
    "it cannot lose": lambda place: claim(margin=-0.1),
    "it cannot be met": lambda place: claim(margin=1.0),
    "no model passes its gate": lambda place: Gate(statement="s", at_least=0.9, at_most=0.1),
    "it asks for too few seeds": lambda place: claim(n_replicates=8),
    "nobody says why the margin is what it is": lambda place: registered(claim(explanation=None), place),
    "it has no negative control": lambda place: registered(claim(controls=planted()[:1]), place),
    "the negative control meets it": lambda place: registered(claim(controls=planted(negative=0.6)), place),
    "the positive control misses it": lambda place: registered(claim(controls=planted(positive=0.4)), place),
    "it was changed after it was registered": changed_later,
}


@pytest.mark.usefixtures("as_installed")
@pytest.mark.every_case
@pytest.mark.parametrize("why", REFUSED)
def test_a_claim_is_refused_as_the_page_says(why, tmp_path):
    with pytest.raises(InputError, match=f"^{re.escape(ROWS[why])}$"):
        REFUSED[why](tmp_path)


def test_a_claim_without_these_faults_is_registered(tmp_path):
    assert register([claim()], tmp_path) == ["X"]


def test_seeds_that_were_looked_at_are_in_the_standing(tmp_path):
    """Otherwise alike, a claim that is older than its runs is confirmed."""
    per_seed = replace(claim(), replicate="seed", units={"narrow": Configuration(preset="d4")}, measure=None)
    fixed = {**registration(per_seed, ()), REGISTERED: "2026-01-02T00:00:00+00:00"}
    run = SimpleNamespace(path=tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({"created": "2026-01-01T00:00:00+00:00"}))
    assert str(standing(fixed, None, [run])) == ROWS["its seeds were looked at"]
    (tmp_path / "run.json").write_text(json.dumps({"created": "2026-01-03T00:00:00+00:00"}))
    assert standing(fixed, None, [run]).can_confirm
    assert str(standing(None, None, [run])) == ROWS["it was never registered"]


def test_every_row_of_the_table_is_tried():
    assert set(ROWS) == {*REFUSED, "its seeds were looked at", "it was never registered"}


def commands() -> list[str]:
    return [line for block in re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.S) for line in block.splitlines()]


def run(line: str, where: Path) -> str:
    """Run a line of the page; the package is found by its metadata, in the place of an installation."""
    paths = os.pathsep.join(map(str, (ROOT / "src", where / "half-the-heads")))
    who = {f"GIT_{role}_{what}": "ada" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **who, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    words = shlex.split(line)
    if words[0] == "mnemoscope":
        words = [sys.executable, "-m", "mnemoscope.cli", *words[1:]]
    elif words[:2] == ["python", "-m"]:
        words = [sys.executable, *words[1:], "-p", "no:cacheprovider"]
    elif words[0] == "pip":
        where, words = (
            where / words[-1],
            [sys.executable, "-c", "import setuptools; setuptools.setup()", "-q", "egg_info"],
        )
    done = subprocess.run(words, cwd=where, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (line, done.stdout, done.stderr)
    return done.stdout


@MINUTES
@pytest.mark.slow
def test_the_commands_of_the_page_lead_to_a_confirmed_verdict(tmp_path):
    """What `claims new` writes is a project of the same files as the example, which takes its place."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    [write, *others] = commands()
    run(write, tmp_path)
    project = tmp_path / "half-the-heads"
    files = {file.relative_to(project) for file in project.rglob("*") if file.is_file()}
    assert files == {
        file.relative_to(PROJECT) for file in PROJECT.rglob("*") if file.suffix in (".py", ".toml", ".yaml")
    }
    assert all("FILL IN" in (project / file).read_text() for file in files if file.stem in ("claims", "presets"))
    shutil.copytree(PROJECT, project, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    printed = {line: run(line, tmp_path) for line in others}
    assert "not registered" in printed["mnemoscope claims show half-the-heads"]
    assert (project / "half_the_heads" / "registered.json").is_file()
    [record] = json.loads((tmp_path / "verdicts" / "verdicts.json").read_text())
    assert record["standing"]["status"] == "before its runs"
    assert (record["outcome"], record["n"], record["confirmed"]) == ("REFUTED", 16, True)
    assert round(record["effect"], 2) == 0.41
    entry = read_entry(project / "half_the_heads" / "registry" / "half-the-heads.json")
    assert entry.id == "half-the-heads:half-the-heads/half-the-heads@1"
    assert entry.registration.standing == "before its runs"
    assert entry.verdict is not None
    assert (entry.verdict.outcome, entry.verdict.n) == (record["outcome"], record["n"])
