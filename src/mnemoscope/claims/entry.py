"""An entry of the registry: one claim with its source, all that was fixed beforehand, and every verdict.

Entries are plain JSON with a schema (`json_schema`), so that they are read, cited and edited without this library. Ids
are global: `mnemo:my-system/X1@2` is version 2 of claim X1 of a system of package `mnemo`. Those of a package lie
in its folder `registry`, one file a claim.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mnemoscope.core import guests
from mnemoscope.core.errors import InputError
from mnemoscope.models.files import write_atomically

FOLDER = "registry"
"""The folder of a package with its entries, `<id of the claim>.json`."""
FORMAT = 1
"""Version of the format; a reader refuses a higher one."""
SCHEMA = f"https://mnemoscope.github.io/schema/claim-{FORMAT}.json"
"""Name of the schema, which `json_schema` gives and the pages publish."""
ID = r"^[a-z][a-z0-9-]*:[A-Za-z0-9_-]+/[A-Za-z0-9_-]+@[1-9][0-9]*$"
"""Package, system, id and version."""

Kind = Literal["attention pattern", "ablation", "representation", "order of learning", "capacity", "prediction", "data"]
"""The subject of a claim: attention of heads, damage without a part, the content of activations or weights, the order
in which parts are learned, how much is stored, the outputs, or the effect of training data."""
Method = Literal[
    "ablation", "activation patching", "attention reading", "weight reading", "weight truncation", "probing",
    "behaviour", "course of training", "retraining", "controlled training", "capacity search", "theory",
]  # fmt: skip
"""The method of a measure. `behaviour` reads losses, accuracies and outputs; `retraining` compares models that were
trained in other ways; `controlled training` holds or freezes parts; `theory` compares with exact numbers."""
Outcome = Literal["SUPPORTED", "REFUTED", "MIXED", "INCONCLUSIVE", "NOT_APPLICABLE"]
Bounds = tuple[float | None, float | None]
"""An interval; null stands for an infinite end."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Paper(_Part):
    """A published work. `doi` or `arxiv` identify it where there are such."""

    key: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]
    """Short name for links, such as `bietti-2023`."""
    title: str
    authors: tuple[str, ...] = ()
    year: int | None = None
    doi: str | None = None
    arxiv: str | None = None
    url: str | None = None


class Source(_Part):
    """The place that a claim was taken from; without a paper it is a question of our own."""

    text: str
    """Source in words, as the claim in code names it."""
    paper: Paper | None = None
    place: str = ""
    """Section, figure or table."""


class Criterion(_Part):
    """The requirement on one effect, and over how many replicates it must be met."""

    name: str
    words: str = ""
    """The effect as a noun phrase."""
    formula: str = ""
    unit: str = ""
    quantifier: str
    margin: float
    direction: Literal["above", "below", "within"]
    bounds: Bounds | None = None
    """The smallest and the largest effect that is possible, where there are such."""


class Gate(_Part):
    """The replicates that a claim is about."""

    statement: str
    at_least: float | None = None
    at_most: float | None = None


class Control(_Part):
    """A case with a known answer: a positive control must meet the criteria, a negative one must not."""

    name: str
    kind: Literal["positive", "negative"]
    n: int
    """Cases that are measured."""
    tolerated: float = 0.0
    """Share of the cases that may do otherwise."""
    expected: str = ""
    """The result that a case must have, in words."""


class Rival(_Part):
    """Another explanation, judged on the same evidence."""

    id: str
    statement: str
    criteria: tuple[Criterion, ...]


class Configuration(_Part):
    """A configuration of models; `digest` is that of all its numbers."""

    name: str
    preset: str
    recipe: str
    changes: dict[str, Any] = {}
    digest: str


class Dated(_Part):
    """A date with the commit that shows it, where there is one."""

    date: str
    commit: str | None = None


class EarlierForm(_Part):
    """A registration under the same id that the present one took the place of."""

    version: int
    question: str
    """Digest of its question, by which its verdict is found."""
    reason: str


class Registration(_Part):
    """Evidence of when a claim was fixed. `digest` is that of the registration, `code` has digests of functions."""

    digest: str
    question: str
    """Digest of criteria, gate, replicates, seeds, prompts and configurations: what a verdict answers."""
    code: dict[str, str]
    registered: Dated | None = None
    runs: Dated | None = None
    """The first of the runs (or, without runs, of the verdicts) that it is judged on."""
    standing: Literal["before its runs", "after its runs", "not dated", "not registered"]
    superseded: tuple[EarlierForm, ...] = ()
    """Earlier forms of the claim, the oldest first."""


class PartFinding(_Part):
    """One effect of a verdict: share of replicates that clear the margin, and mean effect."""

    name: str
    share: float | None = None
    share_interval: Bounds | None = None
    effect: float | None = None
    effect_interval: Bounds | None = None
    sd: float | None = None
    """Standard deviation of the effect between the judged replicates."""


class Verdict(_Part):
    """The result of one trial. Numbers that were not kept are null."""

    outcome: Outcome
    n_clear: Annotated[int, Field(ge=0)]
    """Judged replicates that meet the criteria."""
    n: Annotated[int, Field(ge=0)]
    """Judged replicates: those that pass the gate."""
    n_failed: Annotated[int, Field(ge=0)] | None = None
    """Replicates that do not pass the gate."""
    share: float | None = None
    share_interval: Bounds | None = None
    effect: float | None = None
    """Mean of the part that decides, in its unit."""
    effect_interval: Bounds | None = None
    unit: str = ""
    sd: float | None = None
    """Standard deviation of this effect between the judged replicates."""
    deciding: str = ""
    """Name of the part that decides."""
    p: float | None = None
    error_rate: float | None = None
    """The largest p with which the procedure decides, in either direction; null where nothing is decided."""
    false_discovery_rate: float | None = None
    parts: tuple[PartFinding, ...] = ()
    rivals: dict[str, Outcome] = {}
    recipe: str = ""
    asked_of: str = ""
    """Language model, for claims about these."""
    version: int = 1
    """Version of the claim that was judged."""
    question: str | None = None
    """Digest of the question that was judged, as in `Registration`."""
    confirmed: bool = False
    """True for a decision on a claim that was registered before its runs."""
    report: str = ""
    """Place that tells more: a folder of the repository or an address."""
    judged: Dated | None = None
    superseded: str | None = None
    """The reason why this verdict no longer counts; null for one that does."""


class Replication(_Part):
    """The claim measured again by independent code."""

    by: str
    code: str
    """Place of the code: a path in the repository or an address."""
    outcome: Outcome
    n_clear: int
    n: int
    effects: dict[str, float] = {}
    tolerance: str
    agrees: bool
    note: str = ""
    date: str = ""


class Entry(_Part):
    """One claim of the registry."""

    schema_: Annotated[str, Field(alias="$schema")] = SCHEMA
    format: Literal[1] = FORMAT
    id: Annotated[str, Field(pattern=ID)]
    statement: str
    source: Source
    system: str
    kind: Kind | None = None
    """None: nobody has said so yet."""
    methods: tuple[Method, ...] = ()
    configurations: tuple[Configuration, ...] = ()
    replicate: Literal["seed", "draw", "question", "model"]
    n_replicates: int
    headline: bool = False
    seeds: tuple[int, ...] = ()
    prompts: str = "own"
    gate: Gate | None = None
    joined: Literal["all", "any"] = "all"
    criteria: tuple[Criterion, ...]
    procedure: str = ""
    margins: str = ""
    """Why the margins are what they are."""
    limits: str = ""
    controls: tuple[Control, ...] = ()
    rivals: tuple[Rival, ...] = ()
    factors: dict[str, tuple[str, ...]] = {}
    registration: Registration
    verdicts: tuple[Verdict, ...] = ()
    """The newest last; at most one is not superseded."""
    replications: tuple[Replication, ...] = ()
    notes: str = ""

    @property
    def version(self) -> int:
        """The version of the claim."""
        return int(self.id.rpartition("@")[2])

    @property
    def short_id(self) -> str:
        """The id within its system, such as `X1`."""
        return self.id.partition("/")[2].partition("@")[0]

    @property
    def verdict(self) -> Verdict | None:
        """The verdict that counts; None for a claim that was not tried."""
        return next((each for each in reversed(self.verdicts) if each.superseded is None), None)


def json_schema() -> dict[str, Any]:
    """The JSON schema of an entry, as published."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA,
        **Entry.model_json_schema(by_alias=True),
    }


def schema_text() -> str:
    """The schema as it is written."""
    return json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"


def entry_text(entry: Entry) -> str:
    """An entry as it is written: fields in order, a list or an object without further ones inside on one line."""
    return _text(entry.model_dump(mode="json", by_alias=True), "") + "\n"


def _text(value: Any, indent: str) -> str:
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not any(isinstance(each, dict | list) for each in inner) and (len(indent + line) <= _WIDTH or not _words(inner)):
        return line
    deeper = indent + "  "
    if isinstance(value, dict):
        rows = [f"{json.dumps(name, ensure_ascii=False)}: {_text(each, deeper)}" for name, each in value.items()]
    else:
        rows = [_text(each, deeper) for each in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n" + ",\n".join(deeper + row for row in rows) + f"\n{indent}{closing}"


_WIDTH = 120


def _words(values: Any) -> bool:
    return any(isinstance(each, str) for each in values)


def parse_entry(text: str | bytes, place: str) -> Entry:
    """The entry in a text; raises InputError, one line that names `place` and the first field at fault."""
    if faults := field_faults(text):
        raise InputError(f"{place}: {faults[0]}")
    return Entry.model_validate_json(text)


def field_faults(text: str | bytes) -> list[str]:
    """A line for every field of a text that is not as the schema says, with its path; none for an entry."""
    try:
        content = json.loads(text)
    except ValueError as error:
        return [f"no JSON: {error}"]
    if isinstance(content, dict) and isinstance(given := content.get("format"), int) and given > FORMAT:
        return [f"format: {given} is newer than {FORMAT}, which this version reads; update mnemoscope"]
    try:
        Entry.model_validate_json(text)
    except ValidationError as error:
        return [f"{'.'.join(map(str, each['loc'])) or 'entry'}: {each['msg']}" for each in error.errors()]
    return []


def read_entry(file: Path) -> Entry:
    """The entry in a file; raises InputError where there is none."""
    try:
        return parse_entry(file.read_bytes(), str(file))
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from None


def write_entry(entry: Entry, directory: Path) -> Path:
    """Write an entry to a directory, in place of one with the same short id; returns the file."""
    file = directory / f"{entry.short_id}.json"
    write_atomically(file, entry_text(entry).encode())
    return file


def entry_of(package: Path | None, id: str) -> Entry | None:
    """The entry of a claim, by its short id, in the directory of a package; None where there is none."""
    file = None if package is None else package / FOLDER / f"{id}.json"
    return None if file is None or not file.is_file() else read_entry(file)


def packaged_entries() -> Iterator[tuple[Path, Entry]]:
    """The entries of all guests, by their files, guest by guest."""
    for place in filter(None, map(guests.location, guests.guests())):
        for file in sorted((place / FOLDER).glob("*.json"), key=lambda file: (len(file.stem), file.stem)):
            yield file, read_entry(file)
