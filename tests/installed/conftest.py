"""The package as a user has it: its wheels, built from the sources and installed into an environment of its own.

With TransformerLens as in `constraints.txt`, or of the version that the variable TRANSFORMER_LENS names.
"""

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "src")
PIP = ("-m", "pip", "--disable-pip-version-check", "-q")
INSTALL = (*PIP, "install", "--no-compile")
"""Python compiles what is imported; all of PyTorch and its kin would take as long as the rest of the installation."""
LEFT_OUT = shutil.ignore_patterns("*.egg-info", "__pycache__")
"""What an earlier installation left among the sources; a list of files in there would add files to the wheel."""
HIDDEN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
"""Variables that would let other packages than the installed ones be found."""

VERSION = "from importlib.metadata import version; print(version('transformer-lens'))"


@dataclass(frozen=True, kw_only=True)
class Installation:
    """A virtual environment that holds the wheels."""

    path: Path
    wheels: Path
    """The folder with the wheels."""

    def run(
        self, words: Sequence[str], where: Path, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in the directory `where`; standard error goes with the output."""
        environment = {name: value for name, value in os.environ.items() if name not in HIDDEN}
        environment |= {"MNEMOSCOPE_CACHE": str(self.path / "cache"), "OMP_NUM_THREADS": "1", **(variables or {})}
        command = [str(self.path / "bin" / words[0]), *words[1:]]
        return subprocess.run(
            command, cwd=where, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )


@pytest.fixture(scope="session")
def installation(core: Installation) -> Installation:
    """The environment with the trained runs too, as `pip install "mnemoscope[zoo]"` makes it."""
    command = [sys.executable, str(ROOT / "distributions" / "build_zoo.py"), str(core.wheels)]
    subprocess.run(command, check=True)
    [wheel] = core.wheels.glob("mnemoscope-*.whl")
    here = ["--no-index", "--find-links", str(core.wheels)]
    subprocess.run([core.path / "bin" / "python", *INSTALL, *here, f"{wheel}[zoo]"], check=True)
    return core


@pytest.fixture(scope="session")
def core(tmp_path_factory) -> Installation:
    """The environment with the core wheel only, until `installation` adds the runs."""
    place = tmp_path_factory.mktemp("installed")
    sources, wheels = place / "sources", place / "wheels"
    sources.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, sources / name, ignore=LEFT_OUT)
        else:
            shutil.copy(ROOT / name, sources / name)
    subprocess.run([sys.executable, *PIP, "wheel", str(sources), "--no-deps", "-w", str(wheels)], check=True)
    [wheel] = wheels.glob("*.whl")
    venv.create(place / "env", with_pip=True)
    python = place / "env" / "bin" / "python"
    constraints = (ROOT / "constraints.txt").read_text()
    if line := os.environ.get("TRANSFORMER_LENS"):
        constraints = re.sub("(?m)^transformer-lens==.*$", f"transformer-lens=={line}", constraints)
    (place / "constraints.txt").write_text(constraints)
    subprocess.run([python, *INSTALL, "-c", str(place / "constraints.txt"), str(wheel)], check=True)
    found = subprocess.run([python, "-c", VERSION], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    assert line in (None, found)
    return Installation(path=place / "env", wheels=wheels)
