"""Names of tasks, presets, claims and the like, filled by the guests themselves (`core.guests`).

A registry asks every guest when it first meets a name that it does not know, so that a new system is found
without an entry in a central list.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from mnemoscope.core import guests
from mnemoscope.core.errors import InputError, one_of

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
        guests.load(self.part, of)
        return list(self._items)
