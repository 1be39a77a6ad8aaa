"""A trial over the zoo finds what was measured ahead, and nothing is measured ahead where no process may be started."""

from pathlib import Path
from time import monotonic, sleep

import pytest

import mnemoscope as ms
from mnemoscope.cli import ahead
from tests.support import MINUTES

SOME = 3
"""Runs of T7 that are measured ahead before the trial begins."""
WITHIN = 300


@pytest.mark.parametrize(("ids", "jobs"), [([], 2), (["T7"], 1)])
def test_no_claims_or_one_job_start_no_process(tmp_path, monkeypatch, ids, jobs):
    started = []
    monkeypatch.setattr(ahead, "worker_context", lambda: started.append(1))
    with ahead.zoo_measured_ahead(ids, tmp_path, jobs=jobs):
        assert started == []


@MINUTES
@pytest.mark.thorough
def test_a_trial_does_not_measure_again_what_was_measured_ahead(tmp_path):
    """A key or a stamp that differed between the two processes would cost every run a second measurement."""

    def measured() -> dict[Path, int]:
        return {file: file.stat().st_mtime_ns for file in (tmp_path / "v3-published").glob("seed-*.json")}

    until = monotonic() + WITHIN
    with ahead.zoo_measured_ahead(["T7"], tmp_path, jobs=2):
        while len(measured()) < SOME and monotonic() < until:
            sleep(0.1)
    kept = measured()
    assert len(kept) >= SOME
    claim, runs = ms.CLAIMS.get("T7"), ms.find_runs("zoo:v3-published")
    (ruling,) = ms.run_trials([claim], runs, sensitivity=False, emergence=False, store=tmp_path)
    assert ruling.verdict.n == 16
    assert len(measured()) == 16
    assert {file: measured()[file] for file in kept} == kept
