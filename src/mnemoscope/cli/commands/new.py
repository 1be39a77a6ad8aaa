"""`mnemoscope new`."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from importlib.resources import files
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
    """Folder for the two files."""


def run(options: New) -> None:
    """Write NAME.py and test_NAME.py, and print what to do with them."""
    name = options.name
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or keyword.iskeyword(module):
        raise InputError(f"NAME must be of small letters, digits and hyphens, such as my-{options.what}; got {name!r}")
    words = {"name": name, "module": module, "class_name": "".join(part.capitalize() for part in name.split("-"))}
    folder = files("mnemoscope.cli") / "skeletons"
    targets = {options.out / f"{module}.py": options.what, options.out / f"test_{module}.py": f"{options.what}_test"}
    for target in targets:
        if target.exists():
            raise InputError(f"{target} exists; choose another name, or another folder with --out")
    options.out.mkdir(parents=True, exist_ok=True)
    for target, skeleton in targets.items():
        target.write_text(
            Template((folder / f"{skeleton}.txt").read_text(encoding="utf-8")).substitute(words), encoding="utf-8"
        )
        print(f"wrote {target}")
    file, test = targets
    print(f"try it:  {_NEXT[options.what].format(file=file, name=name)}")
    print(f"test it: python -m pytest {test}  (pip install pytest)")


COMMANDS.add("new", Command(options=New, run=run, section="write an analysis"))
