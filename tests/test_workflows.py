"""The workflows are read by a machine elsewhere: what they call must be there."""

import re
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
