"""The reference by public name: a page for each room, on which every name stands as users write it."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from pkgutil import resolve_name

from mnemoscope.core.renamed import public_rooms, short_name

ROOMS = sorted({room for rooms in public_rooms().values() for room in rooms})


def page(room: str) -> str:
    """The text of the page of a room, in reStructuredText."""
    title = short_name(room)
    names = sorted(name for name, rooms in public_rooms().items() if room in rooms and not name.startswith("_"))
    entries = [line for name in names for line in _entry(room, name)]
    return "\n".join([title, "=" * len(title), "", *entries]) + "\n"


def _entry(room: str, name: str) -> Iterator[str]:
    item, public = getattr(importlib.import_module(room), name), f"{room}.{name}"
    first = f"{public_rooms()[name][0]}.{name}"
    if public != first and resolve_name(first) is item:
        yield f"``{short_name(public)}``: the same as ``{short_name(first)}``"
    elif inspect.ismodule(item):
        yield f"``{short_name(public)}``: {str(inspect.getdoc(item)).splitlines()[0]}"
    elif inspect.isclass(item):
        yield from (f".. autoclass:: {public}", "   :members:")
    elif inspect.isroutine(item):
        yield f".. autofunction:: {public}"
    else:
        yield from (f".. py:data:: {public}", "", *(f"   {line}" for line in _constant_text(room, name).splitlines()))
    yield ""


def _constant_text(room: str, name: str) -> str:
    """The string below the assignment of a constant, in the module that the stub names; empty without one."""
    stub = Path(str(importlib.import_module(room).__file__)).with_suffix(".pyi")
    return _text_below(f"{room}.{_sources(stub)[name]}", name)


def _sources(file: Path) -> dict[str, str]:
    """The module that each name of a file is imported from."""
    imports = [node for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module for node in imports if node.module for alias in node.names}


def _text_below(module: str, name: str) -> str:
    file = Path(str(importlib.import_module(module).__file__))
    if name in (sources := _sources(file)):
        return _text_below(sources[name], name)
    for node, after in pairwise(ast.parse(file.read_text(encoding="utf-8")).body):
        targets = [*getattr(node, "targets", ()), getattr(node, "target", None)]
        assigned = any(isinstance(target, ast.Name) and target.id == name for target in targets)
        if assigned and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            return inspect.cleandoc(str(after.value.value))
    return ""
