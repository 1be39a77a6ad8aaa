"""Values as tables of HTML, for notebooks."""

from collections.abc import Iterable
from html import escape


def html_table(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """A table of names and values under a bold title; everything is escaped, and empty values leave out their row."""
    cells = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(str(value))}</td></tr>'
        for name, value in rows
        if str(value)
    )
    return f"<table><caption><b>{escape(title)}</b></caption>{cells}</table>"
