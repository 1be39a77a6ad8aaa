"""Names and digests of the functions that measure: by these, results are kept and registrations are compared.

The digest of a function is of its syntax tree without docstrings, and of the functions and constants of its guest (or
its module, where that belongs to no guest) that it names, and so on. Formatting, comments and the library do not change
it, nor does the last bit of a number, in which processors differ.
"""

import ast
import hashlib
import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any
from uuid import uuid4

from mnemoscope.core import guests
from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import Configuration

LIBRARY = f"{__name__.partition('.')[0]}."
EARLIER_ROOMS: Mapping[str, str] = {"mnemoscope.run.": "mnemoscope.sweeps."}
"""Rooms under whose earlier names registrations and stores know functions."""


def full_name(function: Callable[..., Any] | type) -> str:
    """The name by which registrations and stores know a function: its own, or the one that it stands for."""
    module = "__main__" if function.__module__ == "__mp_main__" else function.__module__  # in workers
    for now, earlier in EARLIER_ROOMS.items():
        module = module.replace(now, earlier, 1) if module.startswith(now) else module
    return getattr(function, "__dict__", {}).get("STANDS_FOR", f"{module}.{function.__qualname__}")


def name_of(function: Callable[..., Any]) -> str:
    """A function's full name, with the arguments that are bound to it."""
    if isinstance(function, partial):
        bound = [*map(_text, function.args), *(f"{k}={_text(v)}" for k, v in function.keywords.items())]
        return f"{name_of(function.func)}[{', '.join(bound)}]"
    return full_name(function)


def _text(value: Any) -> str:
    """The repr of a value, with functions by their names: theirs holds an address."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {_text(each)}' for key, each in value.items())}}}"
    return name_of(value) if callable(value) else repr(value)


def check_named(what: str, function: Callable[..., Any]) -> None:
    """Refuse a function that its name does not identify: two closures of one name would be taken for each other.

    Such are lambdas and functions that were defined within functions. Functions among the arguments that
    `functools.partial` binds are checked too. `what` names the argument in the message.
    """
    if isinstance(function, partial):
        for each in _bound_functions(function):
            check_named(what, each)
        return
    name = getattr(function, "__qualname__", None)
    if name is None or "<" in name:
        raise InputError(
            f"{what} must be a function that is defined at the top level of a module, with arguments bound by "
            f"functools.partial if need be; got {name or repr(function)}"
        )


def modules_of(function: Callable[..., Any]) -> set[str]:
    """The modules that a function and the functions that are bound to it come from."""
    if not isinstance(function, partial):
        return {function.__module__}
    return set().union(*map(modules_of, _bound_functions(function)))


def _bound_functions(function: partial[Any]) -> list[Callable[..., Any]]:
    """The function of a `partial`, and those that are bound to it, within tuples and mappings too."""
    found: list[Callable[..., Any]] = []
    left: list[Any] = [function.func, *function.args, *function.keywords.values()]
    for value in left:
        if isinstance(value, tuple | list):
            left.extend(value)
        elif isinstance(value, Mapping):
            left.extend(value.values())
        elif callable(value):
            found.append(value)
    return found


def in_package(module: str) -> bool:
    """True if a module is of the library or of a guest that is a package, where registrations lie."""
    owner = guests.guest_of(module)
    return f"{module}.".startswith(LIBRARY) if owner is None else guests.guest_directory(owner) is not None


def function_digest(function: Callable[..., Any]) -> str:
    """SHA-256, 16 digits, of what a function of a guest does, as the module says; bound arguments count."""
    state = hashlib.sha256()
    for text in _texts(function, set()):
        state.update(text.encode() + b"\0")
    return state.hexdigest()[:16]


def _texts(value: Any, seen: set[str]) -> list[str]:
    """The source of a value, and of all within its guest that it rests on."""
    if isinstance(value, partial):
        return _texts((value.func, value.args, value.keywords), seen)
    if isinstance(value, Mapping):
        return [text for pair in sorted(value.items(), key=repr) for text in _texts(pair, seen)]
    if isinstance(value, tuple | list):
        return [text for each in value for text in _texts(each, seen)]
    if isinstance(value, float):
        return [repr(_rounded(value))]
    if not isinstance(value, FunctionType | type):
        return [] if " at 0x" in (text := repr(value)) else [text]
    name, home = full_name(value), _home_package(value)
    if name in seen:
        return []
    seen.add(name)
    if home.startswith(LIBRARY) and guests.guest_of(value.__module__) is None:
        return [name]
    source, words = _source(value)
    names = vars(sys.modules[value.__module__])
    texts = [name, source]
    for used in (names[word] for word in words if word in names):
        foreign = isinstance(used, FunctionType | type) and _home_package(used) != home
        if not isinstance(used, ModuleType):
            texts += [full_name(used)] if foreign else _texts(used, seen)
    return texts


def _home_package(function: Callable[..., Any] | type) -> str:
    """The guest that a function belongs to, or its module."""
    return guests.guest_of(function.__module__) or function.__module__


@cache
def _source(function: Callable[..., Any] | type) -> tuple[str, tuple[str, ...]]:
    """The syntax tree of a function or class without docstrings, and the names in it; nothing without a source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError):
        return "", ()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return _outline(tree), tuple(sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}))


def _outline(node: Any) -> str:
    """A syntax tree as text, without what is empty: versions of Python differ in that."""
    if isinstance(node, list):
        return f"[{', '.join(map(_outline, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = (f"{name}={_outline(value)}" for name, value in ast.iter_fields(node) if value not in (None, []))
    return f"{type(node).__name__}({', '.join(fields)})"


def _rounded(value: float) -> float:
    """A number to nine significant digits; what is within 1e-12 of zero is zero."""
    return 0.0 if abs(value) < 1e-12 else float(f"{value:.9g}")


def source_digest(function: Callable[..., Any]) -> str:
    """The digest of the source of a function and of the functions that are bound to it, wherever they lie.

    The digest of a function of a system is that of the source of the whole system. A function from a prompt has no
    source. It gets another digest in every process, so that nothing kept is taken for its result.
    """
    return _digest_modules(tuple(sorted(modules_of(function))))


@cache
def _digest_modules(modules: tuple[str, ...]) -> str:
    found = {module: guests.source_files(module) for module in modules}
    if not all(found.values()):
        return uuid4().hex[:16]
    return digest_of_files(file for sources in found.values() for file in sources)


def digest_of_files(sources: Iterable[Path]) -> str:
    """The digest of the contents of files, in their order; one that is not there counts as such."""
    digest = hashlib.sha256()
    for file in sources:
        content = file.read_bytes() if file.exists() else None
        digest.update(f"{None if content is None else len(content)};".encode() + (content or b""))
    return digest.hexdigest()[:32]


def configurations(value: Any) -> list[str]:
    """The configurations bound to a function, as presets and recipes make them today, as digests."""
    match value:
        case Configuration():
            return [configuration_digest(value)]
        case partial():
            return configurations((value.args, value.keywords))
        case Mapping():
            return configurations(tuple(value.values()))
        case tuple() | list():
            return [digest for each in value for digest in configurations(each)]
    return []


def configuration_digest(unit: Configuration) -> str:
    """The digest of a configuration, as its preset and recipe make it today."""
    spec = {name: value for name, value in unit.spec(0).to_dict().items() if name != "seed"}
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]
