"""Names and digests of the functions that measure: by these, results are kept and registrations are compared.

The digest of a function is of its syntax tree without docstrings, and of the functions and constants of its guest (or
its module, where that belongs to no guest) that it names, and so on. Formatting, comments and the library do not change
it, nor does the last bit of a number, in which processors differ.
"""

import ast
import dataclasses
import hashlib
import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache, cached_property, partial
from operator import attrgetter
from pathlib import Path, PurePath
from types import FunctionType, MethodType, ModuleType
from typing import Any
from uuid import uuid4

import numpy as np

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


def name_of(function: Any) -> str:
    """A function's full name, with the arguments that are bound to it, or a frozen value with its fields."""
    if isinstance(function, partial):
        bound = [*map(key_text, function.args), *(f"{k}={key_text(v)}" for k, v in function.keywords.items())]
        return f"{name_of(function.func)}[{', '.join(bound)}]"
    return _record_text(function) if _is_frozen(function) else full_name(function)


def key_text(value: Any) -> str:
    """The text of a value in a key: other values have another. Functions stand by their names, arrays by digests."""
    if isinstance(value, np.ndarray):
        content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]
        return f"array({value.dtype}, {value.shape}, {content})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {key_text(each)}' for key, each in value.items())}}}"
    if isinstance(value, _SEQUENCES):
        texts = map(key_text, value) if isinstance(value, tuple | list) else sorted(map(key_text, value))
        kind = "" if type(value) in _SEQUENCES else full_name(type(value))
        return f"{kind}[{', '.join(texts)}]"
    if _is_frozen(value):
        return _record_text(value)
    return name_of(value) if callable(value) else repr(value)


def _record_text(value: Any) -> str:
    """A frozen dataclass with all of its fields, those that its repr leaves out too."""
    fields = (f"{each.name}={key_text(getattr(value, each.name))}" for each in dataclasses.fields(value))
    return f"{full_name(type(value))}({', '.join(fields)})"


def _is_frozen(value: Any) -> bool:
    """True for an instance of a frozen dataclass that holds nothing but its fields."""
    kind = type(value)
    if not dataclasses.is_dataclass(kind) or not getattr(kind, "__dataclass_params__").frozen:  # noqa: B009
        return False
    others = set(getattr(value, "__dict__", ())) - {each.name for each in dataclasses.fields(kind)}
    return all(isinstance(getattr(kind, name, None), cached_property) for name in others)


_SEQUENCES = (tuple, list, set, frozenset)
_PLAIN = (type(None), bool, int, float, complex, str, bytes, Enum, PurePath, range, slice, np.generic)
"""Values that their repr tells apart."""


def check_named(what: str, function: Callable[..., Any]) -> None:
    """Refuse a function that its name does not identify: two of one name would be taken for each other.

    Such are lambdas, closures, bound methods, and objects with a state of their own. Allowed are functions of a module
    and callable frozen dataclasses, whose fields are part of the name. What `functools.partial` binds, and what a field
    holds, is checked too. `what` names the argument in the message.
    """
    if isinstance(function, partial):
        check_named(what, function.func)
        for value in (*function.args, *function.keywords.values()):
            check_key(what, value)
    elif _is_frozen(function) and callable(function) and _is_of_module(type(function)):
        for value in _within(function):
            check_key(what, value)
    elif not _is_of_module(function):
        name = getattr(function, "__qualname__", None)
        kind = "the bound method " if isinstance(function, MethodType) else "" if name else "an object with a state, "
        raise InputError(
            f"{what} must be a function that is defined at the top level of a module, with arguments bound by "
            f"functools.partial if need be, or a callable frozen dataclass; got {kind}{name or type(function).__name__}"
        )


def check_key(what: str, value: Any) -> None:
    """Refuse a value that becomes part of a key and whose text does not tell it from others, within others too."""
    if (isinstance(value, np.ndarray) and not value.dtype.hasobject) or isinstance(value, _PLAIN):
        return
    if isinstance(value, (Mapping, *_SEQUENCES)) or (_is_frozen(value) and _is_of_module(type(value))):
        for each in _within(value):
            check_key(what, each)
    elif callable(value):
        check_named(what, value)
    else:
        raise InputError(
            f"{what} may hold numbers, texts, arrays, tuples, mappings, functions and frozen dataclasses of these, by "
            f"which its results are kept; got {type(value).__name__}"
        )


def _within(value: Any) -> list[Any]:
    """The values directly within another."""
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    if isinstance(value, _SEQUENCES):
        return list(value)
    return [getattr(value, each.name) for each in dataclasses.fields(value)] if _is_frozen(value) else []


def _is_of_module(function: Any) -> bool:
    """True if a module holds the function under its name, or it can have no state where the module is not known."""
    name, module = getattr(function, "__qualname__", "<none>"), sys.modules.get(getattr(function, "__module__", ""))
    if "<" in name or isinstance(function, MethodType):
        return False
    try:
        return attrgetter(name)(module) is function
    except AttributeError:  # as in an example of a docstring
        return isinstance(function, type) or (isinstance(function, FunctionType) and function.__closure__ is None)


def modules_of(function: Callable[..., Any]) -> set[str]:
    """The modules that a function, and the functions and frozen values within it, come from."""
    found: set[str] = set()
    left: list[Any] = [function]
    for value in left:
        left.extend(_within(value))
        if _is_frozen(value) and callable(value):
            found.add(type(value).__module__)
        elif callable(value) and not isinstance(value, partial):
            found.add(value.__module__)
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
    if isinstance(value, np.ndarray):
        with np.printoptions(threshold=sys.maxsize):
            return [repr(value)]
    if _is_frozen(value) and (callable(value) or any(map(_needs_more, _within(value)))):
        return _texts((type(value), *_within(value)), seen)
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


def _needs_more(value: Any) -> bool:
    """True if a repr does not tell a value, such as a function or a large array."""
    return callable(value) or isinstance(value, np.ndarray) or any(map(_needs_more, _within(value)))


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
