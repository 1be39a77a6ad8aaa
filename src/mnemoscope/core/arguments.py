"""Arguments of public functions: one item for a list, or tokens for a batch, is refused at the door, in one line.

Deep inside it would end in an error about a letter of a word, or about something that cannot be iterated.
"""

import inspect
import reprlib
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from mnemoscope.core.errors import InputError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
_LISTS = (Sequence, Iterable, Collection, list)


def check_arguments(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Refuse, by the annotations of a function, what is no list where one is wanted, or no batch.

    A list is a `Sequence`, `Iterable` or `Collection` of whatever, or None; no other type is allowed beside it.
    """

    @wraps(function)
    def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        names, kinds = _kinds(function)
        for name, given in (*zip(names, args, strict=False), *kwargs.items()):
            if kinds.get(name) == "batch" and given is not None:
                from mnemoscope.core.batch import check_is_batch  # commands that only print need no torch

                check_is_batch(given, name)
            elif kinds.get(name) == "list" and given is not None:
                check_is_list(given, name)
            elif kinds.get(name) == "tuple" and not hasattr(given, "__iter__"):
                raise InputError(f"{name} must be a tuple, such as (0, 1); got {given!r}")
        return function(*args, **kwargs)

    return checked


def check_is_list(given: object, argument: str) -> None:
    """Refuse a single item, or a word, where several are wanted."""
    if isinstance(given, str | Mapping) or not hasattr(given, "__iter__"):
        kind, shown = type(given).__name__, reprlib.repr(given)
        plain = isinstance(given, str | int | float)
        raise InputError(
            f"{argument} must be a list, such as [{shown}]; got {shown}"
            if plain
            else f"{argument} must be a list; got a single {kind}: put it in brackets"
        )


@cache
def _kinds(function: Callable[..., Any]) -> tuple[list[str], dict[str, str]]:
    """The names of the parameters in order, and which of them are lists or batches."""
    parameters = inspect.signature(function).parameters.values()
    return [each.name for each in parameters], {each.name: _kind(each.annotation) for each in parameters}


def _kind(annotation: Any) -> str:
    """`list`, `tuple`, `batch`, or nothing."""
    from mnemoscope.core.batch import Batch

    union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    allowed = [each for each in (typing.get_args(annotation) if union else [annotation]) if each is not type(None)]
    if allowed and all(typing.get_origin(each) in _LISTS for each in allowed):
        return "list"
    if typing.get_origin(annotation) is tuple:
        return "tuple"
    return "batch" if allowed == [Batch] else ""
