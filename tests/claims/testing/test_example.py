"""The example of a claim about one's own models, run as its page says."""

import shutil
from pathlib import Path
from unittest import mock

import pytest

from mnemoscope.core.presets import PRESETS, SYSTEMS, preset
from mnemoscope.core.specification import TASKS
from mnemoscope.run.executor import train_many

DOCS = Path(__file__).parents[3] / "docs"
CLAIM = DOCS / "examples" / "test_my_claim.py"


@pytest.fixture
def registries():
    """What the example's task registers is forgotten afterwards."""
    TASKS.names()  # the built-in ones are there before
    with mock.patch.dict(TASKS._items), mock.patch.dict(PRESETS._items), mock.patch.dict(SYSTEMS._items):
        yield


@pytest.fixture
def copies(registries, pytester, monkeypatch):
    """Sixteen models that have learned to copy."""
    for name in ("copy_task.py", CLAIM.name):
        shutil.copy(CLAIM.with_name(name), pytester.path)
    with mock.patch.dict(TASKS._items), mock.patch.dict(PRESETS._items), mock.patch.dict(SYSTEMS._items):
        monkeypatch.syspath_prepend(pytester.path)
        with mock.patch.dict("sys.modules"):
            import copy_task  # noqa: F401 (registers the task)
        specs = [preset("copy-small", "quick", seed) for seed in range(16)]
        train_many(specs, [pytester.path / "runs" / f"seed-{seed:02d}" for seed in range(16)], together=True)
    return pytester


def test_the_example_is_short_and_shown():
    assert len(CLAIM.read_text().splitlines()) < 20
    assert f"{{literalinclude}} examples/{CLAIM.name}" in (DOCS / "unit_tests.md").read_text()


@pytest.mark.thorough
def test_the_example_is_supported_and_another_claim_is_not(copies):
    result = copies.runpytest_inprocess("-p", "no:cacheprovider", "--mnemoscope-runs", copies.path / "runs")
    assert result.ret == 0
    assert "16 passed" in result.stdout.lines[-1]
    result.stdout.fnmatch_lines(["SUPPORTED *::test_one_head_copies_by_looking_back (copy-small-quick): share 1.00 *"])

    (copies.path / CLAIM.name).write_text(CLAIM.read_text().replace("previous(LENGTH)", "previous(1)"))
    with mock.patch.dict(TASKS._items), mock.patch.dict(PRESETS._items), mock.patch.dict(SYSTEMS._items):
        for registry, name in ((TASKS, "copy"), (PRESETS, "copy-small"), (SYSTEMS, "copying")):
            del registry._items[name]  # the second session imports the task anew
        two = ("--mnemoscope-runs", copies.path / "runs/seed-00", "--mnemoscope-runs", copies.path / "runs/seed-01")
        wrong = copies.runpytest_inprocess("-p", "no:cacheprovider", *two)
    assert wrong.ret == 1
    assert "2 deviates" in wrong.stdout.lines[-1]
    wrong.stdout.fnmatch_lines(["NOT_APPLICABLE (expected SUPPORTED) *Deviating: seeds 0, 1."])
