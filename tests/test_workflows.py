"""The workflows are read by a machine elsewhere: what they call must be there."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
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


CHANGELOG = """# Changelog

## [0.2.0] - 2027-01-01

### Added

- New.

## [0.1.0] - 2026-12-01

- Old.
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("version", "notes"), [("0.2.0", "### Added - New."), ("0.1.0", "- Old."), ("0.3.0", None), ("0.1", None)]
)
def test_the_notes_of_a_release_are_its_section_of_the_changelog(version, notes):
    """A release would say nothing, or all that was ever changed."""
    script = ROOT / ".ci" / "notes"
    done = subprocess.run([script, version], input=CHANGELOG, text=True, stdout=subprocess.PIPE, check=False)
    assert (done.returncode == 0) == (notes is not None)
    assert " ".join(done.stdout.split()) == (notes or "")


def test_a_release_and_continuous_integration_build_alike_from_a_version_that_is_counted_from_tags():
    """A release would be the first to find that the package cannot be built."""
    release, ci = (yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())["jobs"]
                   for name in ("release", "ci"))  # fmt: skip
    assert '.ci/package "$GITHUB_REF_NAME"' in [step.get("run") for step in release["package"]["steps"]]
    assert '.ci/package "$tag"' in "".join(step.get("run", "") for step in ci["package"]["steps"])
    checkouts = [job["steps"][0] for job in (*release.values(), ci["package"])]
    assert [step["with"]["fetch-depth"] for step in checkouts] == [0, 0, 0]
