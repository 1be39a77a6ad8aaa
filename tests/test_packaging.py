"""What the wheels hold: files that are not Python only if a pattern of `package-data` matches them; sizes; version."""

import importlib.util
import json
import re
import subprocess
import tomllib
import zlib
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

import mnemoscope as ms
from mnemoscope.cli import main
from mnemoscope.models import zoo
from mnemoscope.models.manifest import FILE

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "mnemoscope"


SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
MOST_CORE, MOST_DATA = 10_000_000, 40_000_000
"""Bytes of the core wheel and of the wheel of one system's runs; the package index takes 100 MB."""


@pytest.fixture(scope="module")
def building():
    """The script that builds the data wheels."""
    spec = importlib.util.spec_from_file_location("building", ROOT / "distributions" / "build_zoo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tracked() -> set[Path]:
    """The files of the package that git tracks."""
    command = ["git", "ls-files", "-z", "--", str(PACKAGE)]
    listed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {ROOT / name for name in listed.split("\0") if name and (ROOT / name).exists()}


def core_data() -> set[Path]:
    """The files that the patterns of `package-data` match."""
    patterns = SETTINGS["tool"]["setuptools"]["package-data"]["mnemoscope"]
    return {path for pattern in patterns for path in PACKAGE.glob(pattern)}


def test_every_tracked_file_of_the_package_goes_into_a_wheel(building):
    data = {path for path in tracked() if path.suffix != ".py"}
    assert any(path.suffix == ".csv" for path in data)
    distributed = {path for files in building.distributions().values() for path in files}
    assert sorted(data - core_data() - distributed) == []
    assert core_data() & distributed == set()


def test_the_core_wheel_is_small():
    files = core_data() | {path for path in tracked() if path.suffix == ".py"}
    archives = {path for path in files if path.suffix == ".zip"}
    assert 3 <= len(archives) <= 4
    assert sum(len(zlib.compress(path.read_bytes())) for path in files) < MOST_CORE


def test_the_archives_of_each_system_are_within_its_budget(building):
    sizes = {name: sum(map(size_of, files)) for name, files in building.distributions().items()}
    assert {name: size for name, size in sizes.items() if size >= MOST_DATA} == {}


def size_of(file: Path) -> int:
    return file.stat().st_size


def test_the_names_of_all_runs_are_those_of_the_archives():
    """`models.zoo` tells by this file what is not installed."""
    names = json.loads((PACKAGE / "systems" / "zoo.json").read_text())
    assert names == sorted(file.stem for file in PACKAGE.glob("systems/*/zoo/*.zip"))


def test_the_extra_brings_every_distribution_of_runs(building):
    named = SETTINGS["project"]["optional-dependencies"]["zoo"]
    assert sorted(named) == [f"mnemoscope-zoo-{system}" for system in sorted(building.distributions())]


def test_the_source_distribution_holds_the_archives_of_the_core_wheel():
    lines = (ROOT / "MANIFEST.in").read_text().splitlines()
    kept = {ROOT / line.removeprefix("include ") for line in lines if line.startswith("include ")}
    assert kept == {path for path in core_data() if path.suffix == ".zip"}


def test_the_sources_of_a_data_wheel_are_copies_with_an_entry_point(building, tmp_path):
    system, files = next(iter(building.distributions().items()))
    place = building.stage(system, files, tmp_path)
    settings = tomllib.loads((place / "pyproject.toml").read_text())
    [package] = settings["tool"]["setuptools"]["packages"]
    assert settings["project"]["entry-points"] == {zoo.GROUP: {system: package}}
    assert {file.name: file.read_bytes() for file in (place / package).glob("*.zip")} == {
        file.name: file.read_bytes() for file in files
    }
    listed = files[0].with_name(FILE)
    assert (place / package / FILE).read_bytes() == listed.read_bytes()
    assert FILE in settings["tool"]["setuptools"]["package-data"][package]


def test_the_citation_has_the_version_that_comes_next_or_was_released():
    """The citation has a date of release exactly when the section of the changelog has one."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    found = re.search(r"^## \[([^]]*)\] - (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert found is not None
    assert cited["version"] == found[1]
    assert str(cited.get("date-released", "Unreleased")) == found[2]


def test_the_version_is_that_of_the_installed_package(capsys):
    main(["--version"])
    assert capsys.readouterr().out == f"{ms.__version__}\n"
    assert ms.__version__ == version("mnemoscope")
