"""HTML from jinja2 templates; it escapes everything that they are given."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def templates() -> Environment:
    """All templates, by their paths in the package.

    Line breaks of a template, with the indentation that follows, are for its reader; a page has none of them.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    def read(name: str) -> str:
        return re.sub(r"\s*\n\s*", "", (files("mnemoscope") / name).read_text(encoding="utf-8"))

    return Environment(loader=FunctionLoader(read), autoescape=True, undefined=StrictUndefined)


def render(template: str, **values: Any) -> str:
    """A template with these values."""
    return templates().get_template(template).render(values)


def macros(template: str) -> Any:
    """The macros of a template, as functions."""
    return templates().get_template(template).module


def html_table(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """A table of names and values under a bold title, for notebooks; empty values have no row."""
    return html_tables("", {title: rows})


def html_tables(heading: str, tables: Mapping[str, Iterable[tuple[str, object]]]) -> str:
    """Such tables by title, one below the other under a heading, if there is one."""
    shown = {title: [(name, str(value)) for name, value in rows if str(value)] for title, rows in tables.items()}
    return render("core/values.html.jinja", heading=heading, tables=shown)
