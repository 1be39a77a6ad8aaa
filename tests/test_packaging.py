"""What a wheel holds: files that are not Python only if a pattern of `package-data` matches them; and its version."""

import subprocess
import tomllib
from importlib.metadata import version
from pathlib import Path

import mnemoscope as ms
from mnemoscope.cli import main

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "mnemoscope"


def test_every_tracked_file_of_the_package_goes_into_the_wheel():
    command = ["git", "ls-files", "-z", "--", str(PACKAGE)]
    listed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    data = {name for name in listed.split("\0") if name and not name.endswith(".py")}
    assert any(name.endswith(".csv") for name in data)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = settings["package-data"]["mnemoscope"]
    matched = {str(path.relative_to(ROOT)) for pattern in patterns for path in PACKAGE.glob(pattern)}
    assert sorted(data - matched) == []


def test_the_version_is_that_of_the_installed_package(capsys):
    main(["--version"])
    assert capsys.readouterr().out == f"{ms.__version__}\n"
    assert ms.__version__ == version("mnemoscope")
