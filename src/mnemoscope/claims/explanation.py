"""The measurements of a claim, for a reader who has not read its code: for its verdict's page and `claims show`.

Wording decides nothing: it is no part of what is registered. `ClaimTexts` reads explanations from a YAML file that lies
beside the claims, so that a scientist can edit them without reading code.
"""

import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from mnemoscope.core.errors import InputError, one_of
from mnemoscope.models.files import read_yaml


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A number that a measure returns; InputError refuses one without words.

    Attributes:
        words: What it is, as a noun phrase that follows "the effect is": "the accuracy lost on repeats without head 0".
        formula: The same as plain text with Unicode signs: "acc(intact) − acc(z of head h ← its mean)". Symbols are
            explained by the words or the procedure.
    """

    words: str
    formula: str = ""

    def __post_init__(self) -> None:
        if not self.words.strip():
            raise InputError("words of a quantity must say what it is; got none")


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A claim in words; InputError refuses a missing text.

    Attributes:
        procedure: How a replicate is measured and on which prompts, in sentences.
        quantities: By name what was measured: the effects of the claim and of its rivals, and what stands beside them
            where its name does not say enough.
        margins: Why the margins are what they are, in sentences.
        limits: What the evidence shows, and what it does not show, in sentences.
    """

    procedure: str
    quantities: Mapping[str, Quantity]
    margins: str
    limits: str = ""

    def __post_init__(self) -> None:
        for name in ("procedure", "margins"):
            if not getattr(self, name).strip():
                raise InputError(f"{name} of an explanation must be sentences; got none")


@dataclass(frozen=True)
class ClaimTexts:
    """The explanations in a YAML file, which is read when the first of them is asked for.

    The file has two keys. `claims` holds by id of a claim the fields of its `Explanation`; a quantity without a formula
    is a text. `phrases` holds by name what several claims say. `{name}` in a text stands for a phrase or for a number
    that the code defines; `{{` and `}}` are braces.

    Attributes:
        file: Path of the file.
        values: Numbers for all texts, by placeholder.
    """

    file: Path
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def ids(self) -> tuple[str, ...]:
        """The claims that the file explains."""
        return tuple(self._content.claims)

    def explain(self, id: str, **values: Any) -> Explanation:
        """The explanation of a claim, with `values` in place of its placeholders.

        A number is written as `format` does; without a format, a float below one has no leading zero (.05). Raises
        InputError, in one line with file and key, for a file that cannot be read, an unknown key, a claim without a
        text and a placeholder without a value.
        """
        one_of(f"claim of {self.file}", id, self.ids)
        text = self._content.claims[id]
        filler = _PlaceholderFiller(f"{self.file}: claims.{id}", self._content.phrases, {**self.values, **values})
        return Explanation(
            procedure=filler.fill("procedure", text.procedure),
            quantities={name: filler.quantity(name, each) for name, each in text.quantities.items()},
            margins=filler.fill("margins", text.margins),
            limits=filler.fill("limits", text.limits),
        )

    @cached_property
    def _content(self) -> "_ExplanationFile":
        content = read_yaml(self.file) or {}
        try:
            return _ExplanationFile.model_validate(content)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(str(part) for part in first["loc"] if part not in ("str", "_Quantity"))
            raise InputError(f"{self.file}: {key}: {first['msg']}; got {first['input']!r:.80}") from None


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Quantity(_Strict):
    words: str
    formula: str = ""


class _ExplanationEntry(_Strict):
    procedure: str
    quantities: dict[str, _Quantity | str]
    margins: str
    limits: str = ""


class _ExplanationFile(_Strict):
    phrases: dict[str, str] = {}
    claims: dict[str, _ExplanationEntry]


@dataclass
class _PlaceholderFiller(string.Formatter):
    """Puts phrases and numbers in place of placeholders; `at` names file and claim in messages."""

    at: str
    phrases: Mapping[str, str]
    values: Mapping[str, Any]

    def quantity(self, name: str, text: _Quantity | str) -> Quantity:
        key = f"quantities.{name}"
        if isinstance(text, str):
            return Quantity(words=self.fill(key, text))
        return Quantity(words=self.fill(key, text.words), formula=self.fill(key, text.formula))

    def fill(self, key: str, text: str) -> str:
        try:
            return self.format(text)
        except (KeyError, ValueError, IndexError) as error:
            known = ", ".join(sorted({*self.values, *self.phrases})) or "none"
            raise InputError(f"{self.at}.{key}: {{{error}}} cannot be filled; known: {known}") from None

    def get_value(self, key: Any, args: Any, kwargs: Any) -> Any:
        return self.values[key] if key in self.values else self.format(self.phrases[key])

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, float) and not format_spec:
            return f"{value:g}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:g}"
        return super().format_field(value, format_spec)
