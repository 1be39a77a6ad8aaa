"""Build the wheels of trained runs, `mnemoscope-zoo-<system>`, from the archives in the packages of the systems.

`python distributions/build_zoo.py dist` writes them to `dist`. The archives stay where they are; each wheel is built
from copies in a temporary folder, with the version that git gives mnemoscope. Equal archives and versions give equal
bytes.
"""

import os
import shutil
import string
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "mnemoscope"
TEMPLATE = Path(__file__).with_name("zoo.toml.in")
MANIFEST = "manifest.json"
"""The list of the archives of a system, beside them."""
EPOCH = "315532800"
"""Seconds from 1970 to 1980: the time of every file in a wheel, where SOURCE_DATE_EPOCH names no other."""


def core_archives() -> set[Path]:
    """The archives in the wheel of mnemoscope itself."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    return {PACKAGE / name for name in settings["package-data"]["mnemoscope"] if name.endswith(".zip")}


def distributions() -> dict[str, list[Path]]:
    """The archives of each distribution by the name of its system; those in the core wheel are left out."""
    found: dict[str, list[Path]] = {}
    for file in sorted(PACKAGE.glob("systems/*/zoo/*.zip")):
        if file not in core_archives():
            found.setdefault(file.parts[-3].replace("_", "-"), []).append(file)
    return found


def stage(system: str, archives: list[Path], place: Path) -> Path:
    """Write the sources of one distribution below `place`."""
    package = f"mnemoscope_zoo_{system.replace('-', '_')}"
    folder = place / system / package
    folder.mkdir(parents=True)
    for file in (*archives, *{file.with_name(MANIFEST) for file in archives}):
        if file.name != MANIFEST or file.is_file():
            shutil.copyfile(file, folder / file.name)
    (folder / "__init__.py").write_text(f'"""Trained runs of {system}, read by mnemoscope."""\n', encoding="utf-8")
    words = {"name": f"mnemoscope-zoo-{system}", "system": system, "package": package, "root": ROOT.as_posix()}
    text = string.Template(TEMPLATE.read_text(encoding="utf-8")).substitute(words, n_archives=len(archives))
    (place / system / "pyproject.toml").write_text(text, encoding="utf-8")
    shutil.copyfile(ROOT / "LICENSE", place / system / "LICENSE")
    return place / system


def build(out: Path) -> None:
    """Build all data wheels into `out`."""
    with tempfile.TemporaryDirectory() as place:
        staged = [str(stage(system, files, Path(place))) for system, files in distributions().items()]
        command = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps"]
        environment = {"SOURCE_DATE_EPOCH": EPOCH, **os.environ}
        subprocess.run([*command, "-w", str(out), *staged], check=True, env=environment)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python distributions/build_zoo.py FOLDER-FOR-THE-WHEELS")
    build(Path(sys.argv[1]))
