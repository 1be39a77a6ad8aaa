"""What a test says of its claim, through the arguments of the marker `claim`."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from mnemoscope.analyses.learned_skills import accuracy_by_skill
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.subject import Subject
from mnemoscope.judging.verdict import Outcome

Over = Literal["most", "every", "exists", "mean"]
Gate = str | Sequence[str] | Callable[[Subject], float]


@dataclass(frozen=True, kw_only=True, eq=False)
class Terms:
    """A claim as its test states it.

    Attributes:
        statement: The sentence.
        quantifier: Over seeds.
        gate: Of which models it speaks: those that have learned a skill, or several; or a function from a `Subject`
            to a number. None: of all.
        at_least: Lowest value of the gate that passes; of a skill, the share of right answers among all sequences
            over unseen mappings.
        preset: Preset (`v3`) or configuration (`v3-quick`) of the runs, where several are found.
        expect: The outcome without which the session fails; None: any outcome is a result.

    Raises:
        InputError: A value is not among the allowed ones.
    """

    statement: str
    quantifier: Over = "most"
    gate: Gate | None = None
    at_least: float = 0.99
    preset: str | None = None
    expect: Outcome | None = None

    def __post_init__(self) -> None:
        one_of("quantifier", self.quantifier, get_args(Over))
        if self.expect is not None:
            one_of("expect", self.expect, get_args(Outcome))
        in_range("at_least", self.at_least, float("-inf"), float("inf"))

    @property
    def gate_statement(self) -> str:
        """What passing means, to follow "which"; empty without a gate."""
        if self.gate is None:
            return ""
        if callable(self.gate):
            return f"{getattr(self.gate, '__name__', 'gate')} is {self.at_least:g} or more"
        skills = " and ".join(self._skills)
        return f"{skills} right in {100 * self.at_least:g} % of unseen sequences or more"

    @property
    def _skills(self) -> tuple[str, ...]:
        assert self.gate is not None
        assert not callable(self.gate)
        return (self.gate,) if isinstance(self.gate, str) else tuple(self.gate)

    def gate_value(self, subject: Subject) -> float | None:
        """What the gate looks at; None without a gate.

        Raises:
            InputError: There is no such skill.
        """
        if self.gate is None:
            return None
        if callable(self.gate):
            return float(self.gate(subject))
        found = accuracy_by_skill(subject)
        for skill in self._skills:
            one_of("gate", skill, found)
        return min(found[skill] for skill in self._skills)


def read_terms(args: Sequence[Any], options: Mapping[str, Any], *, name: str, doc: str | None) -> Terms:
    """The terms that a marker gives.

    Args:
        args: Positional arguments of the marker: the statement, or nothing.
        options: Its keywords.
        name: Of the test; with spaces for underscores it is the statement if there is no other.
        doc: The test's docstring, whose first paragraph is the statement unless the marker has one.

    Raises:
        InputError: The marker is given something that it does not take, or a value that is not allowed.
    """
    allowed = list(inspect.signature(Terms).parameters)
    for option in options:
        one_of("an option of the marker claim", option, allowed)
    if len(args) > 1 or (args and "statement" in options):
        raise InputError(f"the marker claim takes one statement, and keywords; got {len(args)} texts")
    first = inspect.cleandoc(doc or "").partition("\n\n")[0]
    default = " ".join(first.split()) or name.removeprefix("test_").replace("_", " ")
    return Terms(**{"statement": args[0] if args else default, **options})
