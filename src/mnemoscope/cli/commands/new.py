"""`mnemoscope new` and `mnemoscope claims new`."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Literal

from tyro.conf import Positional

from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import CommandOptions
from mnemoscope.core.errors import InputError

_NEXT = {
    "task": "mnemoscope train --import {file} --preset {name}",
    "claim": "mnemoscope claims run --import {file} {name} --runs zoo:v1-quick --out verdicts",
    "analysis": "mnemoscope {name} --import {file} zoo:v3-quick",
}
"""The command that uses what was written."""


@dataclass(frozen=True, kw_only=True)
class New(CommandOptions):
    """Write a working task, claim or analysis with its test, to be changed into your own."""

    what: Positional[Literal["task", "claim", "analysis"]]
    """The kind."""
    name: Positional[str]
    """Its name: small letters, digits and hyphens, beginning with a letter."""
    out: Path = Path()
    """Folder for the files."""


def run(options: New) -> None:
    """Write NAME.py and test_NAME.py, of a claim NAME.yaml too, and print what to do with them."""
    _write_files(options.what, options.name, options.out)


@dataclass(frozen=True, kw_only=True)
class ClaimsNew(CommandOptions):
    """Write a package with a claim that runs, its texts, controls, seeds and test, to be changed into your own."""

    name: Positional[str]
    """Name of the package and of the claim: small letters, digits and hyphens, beginning with a letter."""
    file: bool = False
    """Write one file, its texts and its test in place of a package; it cannot be registered."""
    out: Path = Path()
    """Folder for the package."""


def claims_new(options: ClaimsNew) -> None:
    """Write the folder NAME, or with `file` the same as `new claim`, and print what to do with it."""
    name = options.name
    if options.file:
        _write_files("claim", name, options.out)
        return
    module = _module_of(name, "claim")
    project = options.out / name
    if project.exists():
        raise InputError(f"{project} exists; choose another name, or another folder with --out")
    if find_spec(module) is not None:
        raise InputError(f"NAME must not be that of a module that is installed; got {name!r}; choose another")
    package, test = project / module, project / f"test_{module}.py"
    words = {"imported": f"{module}.claims", "texts": "claims.yaml", "system": f'    system="{name}",\n'}
    _write(
        {
            project / "pyproject.toml": "claim_project",
            package / "__init__.py": "claim_package",
            package / "claims.py": "claim",
            package / "claims.yaml": "claim_texts",
            package / "presets.py": "claim_presets",
            test: "claim_test",
        },
        {"name": name, "module": module, **words},
    )
    print("change the places marked FILL IN, then:")
    print(f"test it:     python -m pytest {test}  (pip install pytest)")
    print(f"install it:  pip install -e {project}")
    print(f"register it: mnemoscope dev register {name}  (before the first run; commit the file)")
    print(f"try it:      mnemoscope claims run {name} --runs DIR --out verdicts")


def _write_files(what: str, name: str, out: Path) -> None:
    """Write the file of a task, a claim or an analysis, with its test."""
    module = _module_of(name, what)
    file, test = out / f"{module}.py", out / f"test_{module}.py"
    targets = {file: what, test: f"{what}_test"}
    if what == "claim":
        targets[out / f"{module}.yaml"] = "claim_texts"
    for target in targets:
        if target.exists():
            raise InputError(f"{target} exists; choose another name, or another folder with --out")
    class_name = "".join(part.capitalize() for part in name.split("-"))
    words = {"imported": module, "texts": f"{module}.yaml", "system": ""}
    _write(targets, {"name": name, "module": module, "class_name": class_name, **words})
    print(f"try it:  {_NEXT[what].format(file=file, name=name)}")
    print(f"test it: python -m pytest {test}  (pip install pytest)")


def _module_of(name: str, what: str) -> str:
    """The module of that name; InputError where it cannot be one."""
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or keyword.iskeyword(module):
        raise InputError(f"NAME must be of small letters, digits and hyphens, such as my-{what}; got {name!r}")
    return module


def _write(targets: Mapping[Path, str], words: Mapping[str, str]) -> None:
    """Write each file from its skeleton, with these words in it."""
    folder = files("mnemoscope.cli") / "skeletons"
    for target, skeleton in targets.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        text = Template((folder / f"{skeleton}.txt").read_text(encoding="utf-8")).substitute(words)
        target.write_text(text, encoding="utf-8")
        print(f"wrote {target}")


COMMANDS.add("new", Command(options=New, run=run, section="write an analysis"))
COMMANDS.add("claims new", Command(options=ClaimsNew, run=claims_new, section="test a claim"))
