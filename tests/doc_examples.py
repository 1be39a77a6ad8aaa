"""Examples in the docstrings of public names, and the names that they use, which the page of the API defines."""

import doctest
import functools
import inspect
import pkgutil
import re
from pathlib import Path
from typing import Any

import mnemoscope as ms

ROOT = Path(__file__).parents[1]


def public_objects() -> dict[str, Any]:
    """The functions and classes of the front door and of the analyses, by public name; each once."""
    rooms = {"ms": ms.__all__, "ms.analyses": [name for name in ms.analyses.__all__ if name not in ms.__all__]}
    found = {
        f"{room}.{name}": pkgutil.resolve_name(f"mnemoscope{room[2:]}:{name}") for room in rooms for name in rooms[room]
    }
    return {name: item for name, item in found.items() if inspect.isfunction(item) or inspect.isclass(item)}


@functools.cache
def _shared() -> dict[str, Any]:
    [code] = re.findall(r"## Examples\n.*?```python\n(.*?)```", (ROOT / "docs" / "api.md").read_text(), re.S)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(code, names)
    return names


def shared_names() -> dict[str, Any]:
    """The names that examples use: those of the block under `Examples` on the page of the API."""
    return dict(_shared())


def examples_of(item: Any) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(inspect.getdoc(item) or "")
