"""Values as tables of HTML, for notebooks."""

from collections.abc import Iterable
from html import escape


def html_table(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """A table of names and values under a title; everything is escaped.

    Args:
        title: Shown in bold.
        rows: Name and value; rows whose value is empty text are left out.
    """
    cells = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(str(value))}</td></tr>'
        for name, value in rows
        if str(value)
    )
    return f"<table><caption><b>{escape(title)}</b></caption>{cells}</table>"
