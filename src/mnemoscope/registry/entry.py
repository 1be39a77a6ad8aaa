"""An entry of the registry: one claim with its source, all that was fixed beforehand, and every verdict.

Entries are plain JSON with a schema (`json_schema`), so that they are read, cited and edited without this library. Ids
are global: `mnemo:tiny-recall/T14@2` is version 2 of claim T14 of a system of package `mnemo`.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

FORMAT = 1
"""Version of the format; a reader refuses a higher one."""
SCHEMA = f"https://mnemoscope.github.io/schema/claim-{FORMAT}.json"
"""Name of the schema, which `json_schema` gives and the pages publish."""
ID = r"^[a-z][a-z0-9-]*:[A-Za-z0-9_-]+/[A-Za-z0-9_-]+@[1-9][0-9]*$"
"""Package, system, id and version."""

Kind = Literal["attention pattern", "ablation", "representation", "order of learning", "capacity", "prediction", "data"]
"""What a claim is about: where heads attend, what breaks without a part, what is written where, which comes first, how
much is stored, which outputs are given, or how training data decide."""
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
    """What one effect has to do, and over how many replicates."""

    name: str
    words: str = ""
    """The effect as a noun phrase."""
    formula: str = ""
    unit: str = ""
    quantifier: str
    margin: float
    direction: Literal["above", "below"]
    bounds: Bounds | None = None


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
    tolerated: float = 0.0


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


class Registration(_Part):
    """What shows when a claim was fixed. `digest` is that of the registration, `code` has digests of functions."""

    digest: str
    question: str
    """Digest of criteria, gate, replicates, seeds, prompts and configurations: what a verdict answers."""
    code: dict[str, str]
    registered: Dated | None = None
    runs: Dated | None = None
    """The first of the runs (or, without runs, of the verdicts) that it is judged on."""
    standing: Literal["before its runs", "after its runs", "not dated", "not registered"]


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
    n_clear: int
    """Judged replicates that meet the criteria."""
    n: int
    """Judged replicates: those that pass the gate."""
    n_failed: int | None = None
    """Replicates that do not pass the gate."""
    share: float | None = None
    share_interval: Bounds | None = None
    effect: float | None = None
    """Mean of the part that decides, in its unit."""
    effect_interval: Bounds | None = None
    unit: str = ""
    p: float | None = None
    error_rate: float | None = None
    """Largest probability that the decision is wrong, which the procedure was set to."""
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
    kind: Kind
    methods: tuple[str, ...] = ()
    """Methods that it is measured with, such as `activation patching`."""
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

    @property
    def short_id(self) -> str:
        """The id within its system, such as `T14`."""
        return self.id.partition("/")[2].partition("@")[0]

    @property
    def verdict(self) -> Verdict | None:
        """The verdict that counts; None for a claim that was not tried."""
        return next((each for each in reversed(self.verdicts) if each.superseded is None), None)


def json_schema() -> dict[str, Any]:
    """The JSON schema of an entry, as published."""
    return {"$id": SCHEMA, **Entry.model_json_schema(by_alias=True)}


def entry_text(entry: Entry) -> str:
    """An entry as it is written: fields in order, two spaces, a newline at the end."""
    return json.dumps(entry.model_dump(mode="json", by_alias=True), indent=2, ensure_ascii=False) + "\n"
