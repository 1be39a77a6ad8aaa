"""The workflows are read by a machine elsewhere: what they call must be there."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
JOBS_OF_RELEASE = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_a_workflow_calls_what_there_is(file):
    jobs = yaml.safe_load(file.read_text())["jobs"]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert all({"runs-on", "timeout-minutes"} <= set(job) for job in jobs.values())
    assert set(re.findall(r"\bmake ([a-z-]+)", "\n".join(commands))) <= set(targets)
    assert all((ROOT / script).is_file() for script in re.findall(r"^\.[\w/]+", "\n".join(commands), re.MULTILINE))


def test_continuous_integration_runs_on_linux_and_macos():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    assert {job["runs-on"] for job in jobs.values()} == {"ubuntu-latest", "macos-latest"}
    assert ".ci/run" in [step.get("run") for step in jobs["linux"]["steps"]]


def release_step(named: str) -> str:
    """What a step of the release runs."""
    (job,) = (job for job in JOBS_OF_RELEASE.values() for step in job["steps"] if step.get("name") == named)
    return next(step["run"] for step in job["steps"] if step.get("name") == named)


CHANGELOG = """# Changelog

## [0.2.0] - 2027-01-01

### Added

- New.

## [0.1.0] - 2026-12-01

- Old.
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("tag", "notes"), [("v0.2.0", "### Added - New."), ("v0.1.0", "- Old."), ("v0.3.0", None), ("v0.1", None)]
)
def test_the_notes_of_a_release_are_its_section_of_the_changelog(tag, notes, tmp_path):
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    script = release_step("the notes are the version's section of the changelog")
    done = subprocess.run(["bash", "-ec", script], cwd=tmp_path, env={"GITHUB_REF_NAME": tag}, check=False)
    assert (done.returncode == 0) == (notes is not None)
    if notes is not None:
        assert " ".join((tmp_path / "notes.md").read_text().split()) == notes


def test_the_version_is_counted_from_tags_that_a_release_fetches():
    script = release_step("wheel and source, with the version of the tag")
    assert 'test -f "dist/mnemoscope-${GITHUB_REF_NAME#v}.tar.gz"' in script
    checkouts = [job["steps"][0] for job in JOBS_OF_RELEASE.values()]
    assert [step["with"]["fetch-depth"] for step in checkouts] == [0, 0]
