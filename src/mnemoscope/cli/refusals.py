"""Refusals of the parser of options, as one line; and refusals, before any work, of places to write to."""

import dataclasses
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args, get_type_hints

from tyro.conf import Positional

from mnemoscope.cli.catalogue import claims_listed, listed
from mnemoscope.cli.options import DrawsFigures, OfClaims, OfPresets, OfRuns, OfSequence
from mnemoscope.core.errors import InputError, nearest, one_of
from mnemoscope.models import zoo
from mnemoscope.models.glance import nothing_in

_POSITIONAL = get_args(Positional[str])[1]
_CHOICE = re.compile(r"invalid choice '(.+?)' for argument .*Expected one of \((.*)\)")
_RULE = re.compile(r"[─-]{8,}")
_FILES = (".html", ".json", ".csv", ".nc", ".tex", ".svg", ".pdf", ".png")
_FRAME = str.maketrans("", "", "│╭╮╰╯┃|")


@contextmanager
def one_line(command: str, options: type) -> Iterator[None]:
    """Turn the box that tyro prints before it exits with 2 into an `InputError`.

    The message names the option, those with a similar name, and the help of `command`, called without the program.
    """
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            yield
    except SystemExit as end:
        if end.code != 2:
            raise
        raise InputError(f"{_reason(said.getvalue(), options)}; see mnemoscope {command} --help") from None


def _reason(box: str, options: type) -> str:
    """The text of a box between its title and the next rule, and the options with a name like one unknown."""
    lines = [line.translate(_FRAME).strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines()]
    _title, *said = filter(None, lines)
    if _RULE.fullmatch(said[0]):  # where the terminal has ASCII only, the title is underlined
        said = said[1:]
    n = next((i for i, line in enumerate(said) if _RULE.fullmatch(line)), len(said))
    reason = " ".join(said[:n]).rstrip(".").partition(". Got errors:")[0]
    if choice := _CHOICE.match(reason):
        return reason + nearest(choice[1], re.findall(r"'(.+?)'", choice[2]))
    unknown = re.match(r"Unrecognized options: ([^\s,=]+)", reason)
    if unknown is None:
        return reason
    names = {name.lstrip("-"): name for name in option_names(options)}
    near = [names[name] for name in get_close_matches(unknown.group(1).lstrip("-"), names)]
    return f"{reason}; the nearest: {', '.join(near)}" if near else reason


def option_names(options: type) -> list[str]:
    """The options of a command as they are written, without those that have no name."""
    hints = get_type_hints(options, include_extras=True)
    names = []
    for field in dataclasses.fields(options):
        marks = getattr(hints[field.name], "__metadata__", ())
        called = next((mark.name for mark in marks if getattr(mark, "name", None)), field.name)
        if not positional(hints[field.name]):
            names.append("--" + called.replace("_", "-"))
    return names


def positional(hint: Any) -> bool:
    """True if an option with this annotation has no name on the command line."""
    return _POSITIONAL in getattr(hint, "__metadata__", ())


def check_figures(options: DrawsFigures) -> None:
    """Refuse figures as files where they cannot be drawn, before there is anything to draw: bad width, no browser."""
    if options.figure_width is not None:
        if not options.figures:
            raise InputError("--figure-width is that of figures as files; name formats, such as --figures pdf")
        if not 0.5 <= options.figure_width <= 50:
            raise InputError(f"--figure-width must be between 0.5 and 50 inches; got {options.figure_width}")
    if options.figures:
        from mnemoscope.report.printing import check_drawing

        check_drawing()


def check_out(out: Path, *, is_file: bool, option: str = "--out") -> None:
    """Refuse a place that results cannot be written to, before there are any; it need not exist."""
    if is_file and out.is_dir():
        raise InputError(
            f"{option} must be a file; {out} is a directory: name a file in it, such as {out / 'page.html'}"
        )
    if not is_file and out.exists() and not out.is_dir():
        raise InputError(f"{option} must be a directory; {out} is a file")
    if not is_file and not out.exists() and out.suffix in _FILES:
        raise InputError(f"{option} must be a directory; {out} is called like a file: leave out {out.suffix}")
    place = out if out.exists() else next(parent for parent in out.absolute().parents if parent.exists())
    if place != out and not place.is_dir():
        raise InputError(f"{option} {out} cannot be made: {place} is a file")
    if not os.access(place, os.W_OK):
        raise InputError(f"{option} {out} cannot be written: {place} is read-only; name another place")


def check_named(options: Any) -> None:
    """Refuse unknown run directories, presets, recipes, claims and systems before anything imports what uses them."""
    paths = options.runs if isinstance(options, OfRuns) else (options.run,) if isinstance(options, OfSequence) else ()
    for path in paths:
        if not zoo.named(path) and not path.exists():
            raise nothing_in(path)
    if isinstance(options, OfClaims):
        claims_listed(options.what)
    if isinstance(options, OfPresets) and options.preset:
        known = listed("presets")
        for name in options.preset:
            one_of("preset", name, known)
            one_of("recipe", options.recipe, known[name]["recipes"])
