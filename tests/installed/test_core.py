"""The core wheel alone: small, with runs for the first minutes, and a way to the others. It precedes the data."""

import tomllib
from pathlib import Path

import pytest

from mnemoscope.models import zoo

pytestmark = pytest.mark.installed

MOST_CORE, MOST_DATA = 10_000_000, 40_000_000


def test_the_core_wheel_alone_has_runs_for_a_start_and_says_how_to_get_the_others(core, tmp_path):
    [wheel] = core.wheels.glob("*.whl")
    assert wheel.stat().st_size < MOST_CORE
    result = core.run(["mnemoscope", "predict", "zoo:v3-quick/seed-16", "3 3 4 5 2 1 1 4 3"], tmp_path)
    assert result.returncode == 0, result.stdout
    for words, what in (
        (["evaluate", "zoo:v3-published"], "zoo:v3-published is not installed"),
        (["claims", "run", "T14", "--zoo"], "the zoo holds no models that"),
    ):
        result = core.run(["mnemoscope", *words], tmp_path)
        assert result.returncode == 2, result.stdout
        assert what in result.stdout
        assert 'pip install "mnemoscope[zoo]" brings' in result.stdout
        assert len(result.stdout.strip().splitlines()) == 1


def test_the_data_wheels_bring_every_run(installation, tmp_path):
    """As many wheels as the extra names, and the configurations of this checkout."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    sizes = {wheel.name: wheel.stat().st_size for wheel in installation.wheels.glob("mnemoscope_zoo_*.whl")}
    assert len(sizes) == len(project["optional-dependencies"]["zoo"])
    assert max(sizes.values()) < MOST_DATA
    code = "from mnemoscope.models import zoo; print(len(zoo.labels()), zoo.missing(), zoo.not_installed())"
    result = installation.run(["python", "-c", code], tmp_path)
    assert result.stdout.splitlines()[-1] == f"{len(zoo.labels())} [] None"
