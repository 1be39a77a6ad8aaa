"""What tokens are called where they are shown: as numbers, or as the symbols of a text, readable."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from mnemoscope.core.protocols import Task

_VISIBLE = {"\n": "⏎", " ": "␣", "\t": "⇥"}


@runtime_checkable
class HasSymbols(Protocol):
    """A task whose tokens are symbols of a text."""

    @property
    def symbols(self) -> Sequence[str]:
        """One a token, in their order."""
        ...


def symbols_of(task: Task) -> list[str]:
    """A visible name of every token: its symbol where the task has symbols, else its number."""
    if isinstance(task, HasSymbols):
        return [_VISIBLE.get(symbol, symbol if symbol.isprintable() else repr(symbol)[1:-1]) for symbol in task.symbols]
    return [str(token) for token in range(task.d_vocab)]


def on_one_line(text: str) -> str:
    """A text with its line breaks shown."""
    return text.replace("\n", _VISIBLE["\n"])
