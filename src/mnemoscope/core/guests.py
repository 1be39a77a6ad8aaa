"""Systems as guests: packages that register tasks, presets, claims, reports and commands, wherever they lie.

A guest is a module or a package that an installed distribution names under the entry point group `mnemoscope.systems`,
or one that was imported by `invite`. A module registers everything when it is imported. A package may hold the parts
`tasks`, `presets`, `claims`, `report`, `records` and `commands`, each a module or a package of modules.
A part is imported when something in it is first needed, so that a list of commands does not wait for the claims.

A `Registry` asks every guest when it first meets a name that it does not know: a new system needs no central list.
"""

import importlib
import importlib.util
import logging
import pkgutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Generic, TypeVar

from mnemoscope.core.errors import InputError, one_of

GROUP = "mnemoscope.systems"
"""Entry points of this group name the guests of an installed distribution."""

_invited: dict[str, str] = {}
"""Module name to what `invite` was given, in that order."""
_folders: set[str] = set()
"""Folders of files that were invited, from which files beside them are imported."""
_broken: dict[str, str] = {}
"""Installed guest to what keeps it from being imported."""


def guests() -> tuple[str, ...]:
    """Names of the modules of all guests: installed ones by name, then those that were invited."""
    return tuple(dict.fromkeys((*_installed(), *_invited)))


def invited_sources() -> tuple[str, ...]:
    """The sources that `invite` was given so far, for a worker process to do the same."""
    return tuple(_invited.values())


def invite(source: str) -> ModuleType:
    """Import a guest that is not installed; its modules are found by name from then on.

    The source is a Python file, or the dotted name of a module or package on the path. Raises InputError where there is
    none, it fails when it is imported, or a file has the name of a module that is there already.
    """
    path = Path(source)
    is_file = path.suffix == ".py"
    if is_file and not path.is_file():
        raise InputError(f"--import {source}: there is no such file")
    name = path.stem if is_file else source
    try:
        module = _import_file(path.resolve()) if is_file else importlib.import_module(name)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"--import {source} cannot be imported: {type(error).__name__}: {error}") from error
    _invited[name] = str(path.resolve()) if is_file else source
    return module


def source_of(module: str) -> str | None:
    """The argument of `invite` for the guest that a module belongs to; None: it was not invited."""
    return _invited.get(guest_of(module) or "")


def load_parts(part: str, of: Iterable[str] | None = None) -> None:
    """Import all guests (or those in `of`) and their part of that name, so that what they register is there.

    An installed guest that cannot be imported is left out from then on, with a warning: it may be of no concern. One
    that was invited raises InputError.
    """
    for guest in guests() if of is None else of:
        _import(guest, part)


def check_importable(module: str) -> None:
    """Refuse a module, by its dotted name, of a guest that was left out because it could not be imported."""
    if (guest := guest_of(module)) in _broken:
        raise InputError(_broken[guest])


def guest_directory(guest: str) -> Path | None:
    """The directory of a guest that is a package; None for a single module, and where nothing can be imported."""
    return location(guest) if _import(guest, "") else None


def location(guest: str) -> Path | None:
    """The directory of a guest that is a package, found without an import of it; None where there is none."""
    try:
        spec = importlib.util.find_spec(guest)
    except (ImportError, ValueError):  # a package around it is missing, or the module of a file has no place
        return None
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


def source_files(module: str) -> list[Path]:
    """Python files that decide what a function of an imported module does: those of its guest, or its own."""
    guest = guest_of(module)
    package = None if guest is None else guest_directory(guest)
    if package is not None:
        return sorted(package.rglob("*.py"))
    file = getattr(sys.modules.get(module), "__file__", None)
    return [Path(file)] if file else []


def guest_of(module: str) -> str | None:
    """The guest that a module belongs to, by its dotted name; None: it belongs to none."""
    owners = [guest for guest in guests() if module == guest or module.startswith(f"{guest}.")]
    return max(owners, key=len, default=None)


@cache
def _installed() -> tuple[str, ...]:
    return tuple(dict.fromkeys(point.value for point in sorted(entry_points(group=GROUP), key=lambda p: p.name)))


@cache
def _import(guest: str, part: str) -> bool:
    """Import a guest and, if it is a package that has it, a part; whether nothing went wrong so far."""
    if guest in _broken:
        return False
    try:
        module = importlib.import_module(guest)
        if part and hasattr(module, "__path__") and importlib.util.find_spec(f"{guest}.{part}") is not None:
            found = importlib.import_module(f"{guest}.{part}")
            for each in pkgutil.iter_modules(getattr(found, "__path__", ())):
                importlib.import_module(f"{found.__name__}.{each.name}")
    except Exception as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        message = f"the system {guest} cannot be imported ({what}); mend or uninstall it"
        if guest in _invited:
            raise InputError(message) from error
        _broken[guest] = message
        logging.getLogger(__name__).warning("mnemoscope goes on without a system: %s", message)
    return guest not in _broken


def _import_file(path: Path) -> ModuleType:
    """The module of a file, under the name of the file, also for those who unpickle its classes later."""
    name = path.stem
    there = sys.modules.get(name)
    if there is not None and Path(getattr(there, "__file__", None) or "").resolve() == path:
        return there
    found = None if there is not None else importlib.util.find_spec(name)
    place = Path(found.origin or "").resolve() if found is not None else path
    if there is not None or (place != path and str(place.parent) not in _folders):
        raise InputError(f"--import {path}: a module {name} exists already; rename the file")
    if str(path.parent) not in sys.path:  # a file beside it can be imported; other modules come first
        sys.path.append(str(path.parent))
        _folders.add(str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


T = TypeVar("T")


@dataclass(frozen=True)
class Registry(Generic[T]):
    """Items of one `kind` by name; packages of guests register them in their part of the name `part`."""

    kind: str
    part: str
    check: Callable[[str, T], None] | None = None
    """Refuses an item that cannot be registered under that name, with an InputError."""
    _items: dict[str, T] = field(default_factory=dict)

    def add(self, name: str, item: T) -> T:
        """Register `item`; InputError where the name is taken by a different one, or the item is not of the kind."""
        if self.check is not None:
            self.check(name, item)
        if self._items.get(name, item) != item:
            raise InputError(f"{self.kind} name {name!r} is taken; choose another")
        self._items[name] = item
        return item

    def get(self, name: str) -> T:
        """The item of that name; InputError where there is none lists the names that exist."""
        if name not in self._items:
            one_of(self.kind, name, self.names())
        return self._items[name]

    def names(self, of: Iterable[str] | None = None) -> list[str]:
        """All names, guest by guest in the order of registration.

        The guests in `of` are imported for that; none: all. What others have registered by then comes along.
        """
        load_parts(self.part, of)
        return list(self._items)
