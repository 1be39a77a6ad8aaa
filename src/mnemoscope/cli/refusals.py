"""Refusals of the parser of options, as one line; and refusals, before any work, of places to write to."""

import dataclasses
import os
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args, get_type_hints

from tyro._errors import (  # structured, and private: pyproject.toml says which versions of tyro have it
    BadValue,
    InstantiationFailure,
    InvalidChoice,
    MissingArgs,
    ParseErrorEvent,
    UnrecognizedArgs,
    on_parse_error,
)
from tyro.conf import Positional

from mnemoscope.cli.catalogue import catalogue_entries, claim_entries
from mnemoscope.cli.options import ClaimOptions, FigureOptions, PresetOptions, RunOptions, SequenceOptions
from mnemoscope.core.errors import InputError, one_of, suggest_nearest
from mnemoscope.models import zoo
from mnemoscope.models.glance import no_runs_error

_POSITIONAL = get_args(Positional[str])[1]
_FILES = (".html", ".json", ".csv", ".nc", ".tex", ".svg", ".pdf", ".png")


@contextmanager
def refuse_in_one_line(command: str, options: type) -> Iterator[None]:
    """Turn what tyro refuses into an `InputError`, which names the nearest options or values and the command's help."""

    def refuse(event: ParseErrorEvent) -> None:
        if reason := _refusal_text(event, options):
            raise InputError(f"{reason}; see mnemoscope {command} --help")

    with on_parse_error(refuse):
        yield


def _refusal_text(event: ParseErrorEvent, options: type) -> str | None:
    """The words on an event; None where tyro prints its own."""
    match event:
        case UnrecognizedArgs(tokens=words):
            if issubclass(options, SequenceOptions) and not words[0].startswith("-"):
                return f"Unrecognized words: {', '.join(words)}; put the sequence in quotes"
            names = {name.lstrip("-"): name for name in option_names(options)}
            near = [names[name] for name in get_close_matches(words[0].partition("=")[0].lstrip("-"), names)]
            return f"Unrecognized options: {', '.join(words)}" + (f"; the nearest: {', '.join(near)}" if near else "")
        case InvalidChoice(argument=argument, value=value, choices=choices):
            expected = f"Expected one of {tuple(choices)}{suggest_nearest(value, choices)}"
            return f"invalid choice {value!r} for argument '{argument.display_name()}'. {expected}"
        case MissingArgs(missing_arguments=missing):
            named = [f"{each.arg.lowered.metavar} {_help(each.arg)} (required)" for each in missing]
            return f"Missing from {event.prog}: {' '.join(named)}"
        case BadValue(argument=argument, reason="too_few_values"):
            expected = f"Expected {argument.lowered.nargs} values"
            return f"Missing value for argument '{argument.display_name()}'. {expected}"
        case InstantiationFailure(message=message, argument=argument):
            called = "" if argument is None else f" {argument.display_name()}"
            return f"Error parsing{called}: {' '.join(str(message).split()).rstrip('.').partition('. Got errors:')[0]}"
    return None


def _help(argument: Any) -> str:
    text: Any = argument.field.helptext
    return " ".join(str((text() if callable(text) else text) or "").split())


def option_names(options: type) -> list[str]:
    """The options of a command as they are written, without those that have no name."""
    hints = get_type_hints(options, include_extras=True)
    names = []
    for field in dataclasses.fields(options):
        marks = getattr(hints[field.name], "__metadata__", ())
        called = next((mark.name for mark in marks if getattr(mark, "name", None)), field.name)
        if not is_positional(hints[field.name]):
            names.append("--" + called.replace("_", "-"))
    return names


def is_positional(hint: Any) -> bool:
    """True if an option with this annotation has no name on the command line."""
    return _POSITIONAL in getattr(hint, "__metadata__", ())


def check_figures(options: FigureOptions) -> None:
    """Refuse figures as files where they cannot be drawn, before there is anything to draw: bad width, no browser."""
    if options.figure_width is not None:
        if not options.figures:
            raise InputError("--figure-width is that of figures as files; name formats, such as --figures pdf")
        if not 0.5 <= options.figure_width <= 50:
            raise InputError(f"--figure-width must be between 0.5 and 50 inches; got {options.figure_width}")
    if options.figures:
        from mnemoscope.report.printing import check_drawing

        check_drawing()


def check_out(out: Path, *, is_file: bool, page: bool = False, option: str = "--out") -> None:
    """Refuse a place that results, or a page, cannot be written to, before there are any; it need not exist."""
    if is_file and out.is_dir():
        raise InputError(
            f"{option} must be a file; {out} is a directory: name a file in it, such as {out / 'page.html'}"
        )
    if page and out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{option} must name a page, such as {out.with_suffix('.html')}; got {out}")
    if not is_file and out.exists() and not out.is_dir():
        raise InputError(f"{option} must be a directory; {out} is a file")
    if not is_file and not out.exists() and out.suffix in _FILES:
        raise InputError(f"{option} must be a directory; {out} is called like a file: leave out {out.suffix}")
    place = out if out.exists() else next(parent for parent in out.absolute().parents if parent.exists())
    if place != out and not place.is_dir():
        raise InputError(f"{option} {out} cannot be made: {place} is a file")
    if not os.access(place, os.W_OK):
        raise InputError(f"{option} {out} cannot be written: {place} is read-only; name another place")


def check_registered_names(options: Any) -> None:
    """Refuse unknown run directories, presets, recipes, claims and systems before anything imports what uses them."""
    paths = (
        options.runs
        if isinstance(options, RunOptions)
        else (options.run,)
        if isinstance(options, SequenceOptions)
        else ()
    )
    for path in paths:
        if not zoo.is_zoo_word(path) and not path.exists():
            raise no_runs_error(path)
    if isinstance(options, ClaimOptions):
        claim_entries(options.what)
    if isinstance(options, PresetOptions) and options.preset:
        known = catalogue_entries("presets")
        for name in options.preset:
            one_of("preset", name, known)
            one_of("recipe", options.recipe, known[name]["recipes"])
