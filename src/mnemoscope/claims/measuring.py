"""Measures taken of many models: planned once, shared between claims, kept on disk, spread over processes.

All measures of one model for claims and cells are one piece of work, so that a model is read once. A finished piece is
kept in a separate file and found again, as long as nothing has changed that decides about it: the version
of the measure, that of the library's numbers, the versions of torch and TransformerLens, and of the run its
specification, metrics, trajectory and the checkpoint that was measured.

The version of a measure is that of its claim, if registered, and if its functions lie in packages. Code that is moved
costs no store then; on controls it is measured anew, so that a trial compares its values with those registered. A
measure that is still being written counts by the source of its guest or file: an edit is measured again.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

import numpy as np

from mnemoscope.claims.claim import Measured
from mnemoscope.claims.registration import LIBRARY, configurations, function_digest
from mnemoscope.core import guests
from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.version import NUMBERS
from mnemoscope.models.files import write_atomically
from mnemoscope.models.language.conversion import named_language_model
from mnemoscope.models.language.sources import fingerprint
from mnemoscope.models.run import Run
from mnemoscope.models.subjects import Subject, subject
from mnemoscope.run.executor import ATTEMPTS, analyse_many

RESTS_ON = ("torch", "transformer-lens")
"""Distributions whose versions decide what is measured, whatever the measure."""

KEPT_EVERY = 10.0
"""Seconds after which what was measured of one piece of work so far is written."""

Factors = tuple[tuple[str, Any], ...]
Planted = Mapping[str, Any]  # by configuration a subject, a model, or whatever else a measure of the claim takes
Plant = Callable[[int], Planted]


@dataclass(frozen=True)
class Call:
    """One call of a measure on any work, or on a model after some step; `version` is that of a registered claim."""

    measure: Callable[..., Measured]
    factors: Factors = ()
    step: int | None = None
    version: int | None = None

    @property
    def key(self) -> str:
        """The key of the result; it changes with the version of the measure, or its source."""
        by_version = self.stands_by_version(self.measure)
        known_by = f"version {self.version}" if by_version else source_digest(self.measure)
        factors = ", ".join(f"{name}={value!r}" for name, value in self.factors)
        at = "" if self.step is None else f" at step {self.step}"
        return f"{name_of(self.measure)}({factors}){at} {known_by}"

    def stands_by_version(self, *functions: Callable[..., Any]) -> bool:
        """True if the version says what functions do: there is one, and they lie in packages."""
        return self.version is not None and all(_in_package(m) for each in functions for m in modules_of(each))


def _within(function: partial[Any]) -> list[Callable[..., Any]]:
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


def check_named(what: str, function: Callable[..., Any]) -> None:
    """Refuse a function that its name does not identify: two closures of one name would be taken for each other.

    Such are lambdas and functions that were defined within functions. Functions among the arguments that
    `functools.partial` binds are checked too. `what` names the argument in the message.
    """
    if isinstance(function, partial):
        for each in _within(function):
            check_named(what, each)
        return
    name = getattr(function, "__qualname__", None)
    if name is None or "<" in name:
        raise InputError(
            f"{what} must be a function that is defined at the top level of a module, with arguments bound by "
            f"functools.partial if need be; got {name or repr(function)}"
        )


def name_of(function: Callable[..., Any]) -> str:
    """A function's full name, with the arguments that are bound to it."""
    if isinstance(function, partial):
        bound = [*map(_text, function.args), *(f"{k}={_text(v)}" for k, v in function.keywords.items())]
        return f"{name_of(function.func)}[{', '.join(bound)}]"
    module = "__main__" if function.__module__ == "__mp_main__" else function.__module__  # in workers
    return f"{module}.{function.__qualname__}"


def _text(value: Any) -> str:
    """The repr of a value, with functions by their names: theirs holds an address."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {_text(each)}' for key, each in value.items())}}}"
    return name_of(value) if callable(value) else repr(value)


def source_digest(function: Callable[..., Any]) -> str:
    """The digest of the source of a function and of the functions that are bound to it, wherever they lie.

    The digest of a function of a system is that of the source of the whole system. A function from a prompt has no
    source. It gets another digest in every process, so that nothing kept is taken for its result.
    """
    return _digest_of(tuple(sorted(modules_of(function))))


def _in_package(module: str) -> bool:
    """True if a module is of the library or of a guest that is a package, where registrations lie."""
    owner = guests.owner(module)
    return f"{module}.".startswith(LIBRARY) if owner is None else guests.directory(owner) is not None


def modules_of(function: Callable[..., Any]) -> set[str]:
    """The modules that a function and the functions that are bound to it come from."""
    if not isinstance(function, partial):
        return {function.__module__}
    return set().union(*map(modules_of, _within(function)))


@cache
def _digest_of(modules: tuple[str, ...]) -> str:
    found = {module: guests.sources(module) for module in modules}
    if not all(found.values()):
        return uuid4().hex[:16]
    return _digest(file for sources in found.values() for file in sources)


@dataclass(frozen=True)
class OfRun:
    """Calls on the models of one run."""

    run: Run
    calls: tuple[Call, ...]

    @property
    def name(self) -> str:
        """Name of the file that keeps the results."""
        return f"{self.run.label}/seed-{self.run.spec.seed:02d}"

    def fingerprint(self, step: int | None) -> str:
        """Changes with the specification, with what was logged and measured along training, and with the model."""
        run = self.run
        model = run.checkpoint_path(run.steps[-1] if step is None else step)
        return _digest((run.path / "run.json", run.path / "metrics.jsonl", run.trajectory_path, model))

    def load(self, step: int | None) -> Subject:
        """The model that calls at a step are on."""
        return subject(self.run, step)

    def take(self, call: Call, on: Subject) -> Measured:
        """The result of one call."""
        return call.measure(on, **dict(call.factors))


@dataclass(frozen=True)
class OfPlant:
    """Calls on one case of a control: what is planted is measured, or is what was measured, and is compared."""

    plant: Plant
    case: int
    compare: Callable[[Mapping[str, Measured]], Measured] | None
    calls: tuple[Call, ...]

    @property
    def name(self) -> str:
        """Name of the file that keeps the results; claims that plant and compare the same share it."""
        what = name_of(self.plant) + ("" if self.compare is None else name_of(self.compare))
        return f"controls/{hashlib.sha256(what.encode()).hexdigest()[:16]}-{self.case}"

    def fingerprint(self, step: int | None) -> str:
        """Changes with the configurations that are planted."""
        return " ".join(configurations(self.plant))

    def code(self, call: Call) -> str:
        """Changes with the functions that decide what a call gives."""
        functions = [each for each in (call.measure, self.plant, self.compare) if each is not None]
        return " ".join(map(function_digest if call.stands_by_version(*functions) else source_digest, functions))

    def load(self, step: int | None) -> Planted:
        """The planted case that calls are on."""
        return self.plant(self.case)

    def take(self, call: Call, on: Planted) -> Measured:
        """The result of one call."""
        units: dict[str, Measured] = {}
        for name, thing in on.items():
            units[name] = thing if isinstance(thing, Mapping) else call.measure(thing, **dict(call.factors))
        return next(iter(units.values())) if self.compare is None else self.compare(units)


@dataclass(frozen=True)
class OfDraw:
    """Calls on one draw, of claims that are about no model."""

    measure: Callable[..., Measured]
    draw: int
    calls: tuple[Call, ...]

    @property
    def name(self) -> str:
        """Name of the file that keeps the results; claims with one measure (a claim and its rivals) share it."""
        return f"draws/{hashlib.sha256(name_of(self.measure).encode()).hexdigest()[:16]}-{self.draw}"

    def fingerprint(self, step: int | None) -> str:
        """A draw is nothing but its number."""
        return ""

    def load(self, step: int | None) -> int:
        """The number of the draw that calls are on."""
        return self.draw

    def take(self, call: Call, on: int) -> Measured:
        """The result of one call."""
        return call.measure(on, **dict(call.factors))


@dataclass(frozen=True)
class OfModel:
    """Calls on one language model, which is loaded once for all of them; its name may carry a revision."""

    source: str
    device: str
    dtype: str
    calls: tuple[Call, ...]

    @property
    def name(self) -> str:
        """Name of the file that keeps the results."""
        return f"models/{hashlib.sha256(f'{self.source} {self.dtype}'.encode()).hexdigest()[:16]}"

    def fingerprint(self, step: int | None) -> str:
        """Changes with the model's files or its package, with the device, and with the library that reads it."""
        return f"{fingerprint(self.source)} on {self.device} by transformers {version('transformers')}"

    def load(self, step: int | None) -> HookedModel:
        """The model that calls are on."""
        return named_language_model(self.source, device=self.device, dtype=self.dtype)

    def take(self, call: Call, on: HookedModel) -> Measured:
        """The result of one call."""
        return call.measure(on, **dict(call.factors))


Work = OfRun | OfPlant | OfDraw | OfModel
Results = dict[str, dict[str, Measured]]
"""Measurements by the name of the work and the key of the call."""


def merged(work: Sequence[Work]) -> list[Work]:
    """One piece a name, with the calls of all, so that a model is read once; runs of one task come together."""
    found: dict[str, Work] = {}
    for piece in work:
        before = found.get(piece.name)
        calls = piece.calls if before is None else (*before.calls, *piece.calls)
        found[piece.name] = replace(piece, calls=tuple(dict.fromkeys(calls)))
    return sorted(found.values(), key=lambda piece: repr(piece.run.spec.task) if isinstance(piece, OfRun) else "")


def measure_all(
    work: Sequence[Work], *, jobs: int, store: Path | None, report: Callable[[Work], None] | None = None
) -> Results:
    """Do all work that is not done yet; a worker that dies is replaced.

    Language models are measured in this process, one after the other, with all of its threads: several at once would
    need as much memory each.

    Pieces of work have different names. `jobs` are for all but language models; 0: one per core. Without a directory
    `store` nothing is kept, and nothing is found. `report` is called after each piece. Raises InputError where a
    measure refuses its model; RuntimeError where workers died again and again, and what was finished is kept.
    """
    results: Results = {}
    for piece in work:
        if isinstance(piece, OfModel):
            results[piece.name] = do(piece, store=store)
            if report:
                report(piece)
    for _ in range(ATTEMPTS):
        left = [piece for piece in work if piece.name not in results]
        try:
            for piece, found in zip(left, analyse_many(left, partial(do, store=store), jobs=jobs), strict=True):
                results[piece.name] = found
                if report:
                    report(piece)
        except BrokenProcessPool:
            continue
        return results
    raise RuntimeError(f"workers died {ATTEMPTS} times; what was measured is kept, the same command continues")


def do(piece: Work, *, store: Path | None) -> dict[str, Measured]:
    """One piece of work: what is kept is read, the rest measured and kept."""
    file = None if store is None else store / f"{piece.name}.json"
    kept = {} if file is None else _read(file)
    steps = {step: piece.fingerprint(step) for step in {call.step for call in piece.calls}}
    code = {call: f" {piece.code(call)}" if isinstance(piece, OfPlant) else "" for call in piece.calls}
    stamps = {call: f"{instrument()} {steps[call.step]}{code[call]}" for call in piece.calls}
    missing = [call for call in piece.calls if kept.get(call.key, {}).get("stamp") != stamps[call]]
    if missing:
        written, new = monotonic(), {}
        for i, (call, measured) in enumerate(_taken(piece, missing), 1):
            new[call.key] = {"stamp": stamps[call], "measured": measured}
            if file is not None and (i == len(missing) or monotonic() - written > KEPT_EVERY):
                write_atomically(file, json.dumps(_read(file) | new).encode(), shared=True)  # others add to it too
                written = monotonic()
        kept |= new
    return {
        call.key: {
            name: np.array(value, dtype=float) if isinstance(value, list) else float(value)
            for name, value in kept[call.key]["measured"].items()
        }
        for call in piece.calls
    }


def _taken(piece: Work, calls: Sequence[Call]) -> Iterator[tuple[Call, dict[str, float | list[float]]]]:
    """Some calls with their results; those on one model together, since what is kept with it serves them all."""
    for step in dict.fromkeys(call.step for call in calls):
        on: Any = piece.load(step)
        for call in calls:
            if call.step == step:
                yield call, _plain(piece.take(call, on))


@cache
def instrument() -> str:
    """Versions that every result depends on: of our numbers, and of the packages below them."""
    return " ".join([f"numbers-{NUMBERS}", *(version(package) for package in RESTS_ON)])


def _digest(sources: Iterable[Path]) -> str:
    """The digest of the contents of files, in their order; one that is not there counts as such."""
    digest = hashlib.sha256()
    for file in sources:
        content = file.read_bytes() if file.exists() else None
        digest.update(f"{None if content is None else len(content)};".encode() + (content or b""))
    return digest.hexdigest()[:32]


def _read(file: Path) -> dict[str, dict[str, Any]]:
    """The results of this instrument that the file keeps, by key, with its stamp; nothing if it cannot be read."""
    try:
        content = json.loads(file.read_text())
        return {key: entry for key, entry in content.items() if entry["stamp"].startswith(f"{instrument()} ")}
    except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        return {}


def _plain(measured: Measured) -> dict[str, float | list[float]]:
    return {name: np.asarray(value, dtype=float).tolist() for name, value in measured.items()}
