"""Names of tasks and presets, filled by the modules themselves.

A registry imports every module of its package when it is first asked, so a new file is found without an entry in a
central list. A module outside the package registers the same way once it is imported.
"""

import importlib
import pkgutil
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from mnemoscope.core.errors import InputError, one_of

T = TypeVar("T")


@dataclass(frozen=True)
class Registry(Generic[T]):
    """Items of one `kind` by name; built-in ones live in the modules of `package`."""

    kind: str
    package: str
    _items: dict[str, T] = field(default_factory=dict)

    def add(self, name: str, item: T) -> T:
        """Register `item`.

        Raises:
            InputError: The name is taken by a different item.
        """
        if self._items.get(name, item) != item:
            raise InputError(f"{self.kind} name {name!r} is taken; choose another")
        self._items[name] = item
        return item

    def get(self, name: str) -> T:
        """The item of that name.

        Raises:
            InputError: There is none; the message lists the names that exist.
        """
        if name not in self._items:
            one_of(self.kind, name, self.names())
        return self._items[name]

    def names(self) -> list[str]:
        """All names, in the order of registration within alphabetically imported modules."""
        package = importlib.import_module(self.package)
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{self.package}.{module.name}")
        return list(self._items)
