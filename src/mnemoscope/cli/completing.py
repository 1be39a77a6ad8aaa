"""Candidates of a shell for a word that is being typed: commands, options, values and registered names.

Shells call `mnemoscope --complete` with the words of the line. Names come from the catalogues of guests, so that
nothing heavy is imported. *Does not know* names of guests that `--import` brings, nor the recipes of a preset.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

from mnemoscope.cli.catalogue import listed
from mnemoscope.cli.listing import commands, split_command
from mnemoscope.cli.options import NamesOf
from mnemoscope.cli.refusals import option_names, positional
from mnemoscope.models import zoo
from mnemoscope.records.record import records


def candidates(words: Sequence[str]) -> list[str]:
    """The candidates for the last word, which may be empty or begun; none where files may stand."""
    *before, typed = words or [""]
    called = split_command(before)
    if called is None:
        n = len(before)
        offered: Iterable[str] = [name.split()[n] for name in commands() if name.split()[:n] == before]
        offered = [*offered, *(() if before else ("--help", "--version"))]
    else:
        offered = _after(commands()[called[0]].options, called[1], typed)
    return [word for word in dict.fromkeys(offered) if word.startswith(typed)]


def _after(options: type, given: Sequence[str], typed: str) -> Iterable[str]:
    """The words that may follow those given to a command."""
    hints = get_type_hints(options, include_extras=True)
    if typed.startswith("-"):
        switches = [f"--no-{name}".replace("_", "-") for name, hint in hints.items() if _bare(hint) is bool]
        return ("--help", *option_names(options), *switches)
    return _values(hint) if (hint := _expected(options, hints, given)) is not None else ()


def _expected(options: type, hints: Mapping[str, Any], given: Sequence[str]) -> Any | None:
    """The annotation of the option or the argument that the next word belongs to; None: there is none."""
    opened = [place for place, word in enumerate(given) if word.startswith("--")]
    if opened:
        called, n_values = given[opened[-1]], len(given) - opened[-1] - 1
        hint = hints.get(called.removeprefix("--").replace("-", "_"))
        takes = hint is not None and _bare(hint) is not bool
        if takes and (n_values == 0 or _several(hint)):
            return hint
        n_before = opened[0] + max(0, n_values - takes)
    else:
        n_before = len(given)
    places = [hints[field.name] for field in dataclasses.fields(options) if positional(hints[field.name])]
    if n_before < len(places):
        return places[n_before]
    return places[-1] if places and _several(places[-1]) else None


def _bare(hint: Any) -> Any:
    """An annotation without its marks."""
    return get_args(hint)[0] if hasattr(hint, "__metadata__") else hint


def _several(hint: Any) -> bool:
    return get_origin(_bare(hint)) is tuple


def _values(hint: Any) -> Iterable[str]:
    """The words that an option takes, as far as these are known."""
    for mark in getattr(hint, "__metadata__", ()):
        if isinstance(mark, NamesOf):
            yield from (*mark.also, *_names(mark.kind))
    yield from _choices(hint)


def _choices(hint: Any) -> Iterable[str]:
    if get_origin(hint) is Literal:
        yield from map(str, get_args(hint))
    else:
        for inner in get_args(hint):
            yield from _choices(inner)


def _names(kind: str) -> Iterable[str]:
    if kind == "presets" or kind == "systems":
        return listed(kind)
    if kind == "recipes":
        return (name for preset in listed("presets").values() for name in preset["recipes"])
    if kind == "claims":
        claims = listed("claims")
        return (*claims, *(claim["system"] for claim in claims.values()))
    if kind == "analyses":
        return records()
    assert kind == "runs", kind
    return (zoo.WORD, *(f"{zoo.WORD}:{label}" for label in zoo.labels()))
