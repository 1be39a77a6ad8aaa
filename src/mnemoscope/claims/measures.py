"""Measures taken of many models: planned once, shared between claims, kept on disk, spread over processes.

All measures of one model for claims and cells are one piece of work, so that a model is read once. A finished piece is
kept in a separate file and found again, as long as nothing has changed that decides about it: the version
of the measure, that of the library's numbers, the versions of torch and TransformerLens, and of the run its
specification, metrics, trajectory and the checkpoint that was measured.

The version of a measure is that of its claim, if registered, and if its functions lie in packages. Code that is moved
costs no store then; on controls it is measured anew, so that a trial compares its values with those registered. A
measure that is still being written counts by the source of its guest or file: an edit is measured again.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from mnemoscope.claims.claim import Claim, Measured
from mnemoscope.claims.functions import (
    configurations,
    digest_of_files,
    function_digest,
    in_package,
    key_text,
    modules_of,
    name_of,
    source_digest,
)
from mnemoscope.claims.store import check_entries, entry_of, instrument, read_entries, text_digest
from mnemoscope.core.protocols import HookedModel
from mnemoscope.models.files import write_atomically
from mnemoscope.models.language.conversion import named_language_model
from mnemoscope.models.language.sources import fingerprint
from mnemoscope.models.run import Run
from mnemoscope.models.subjects import Subject, subject
from mnemoscope.run.executor import ATTEMPTS, analyse_many

KEPT_EVERY = 10.0
"""Seconds after which what was measured of one piece of work so far is written."""


Factors = tuple[tuple[str, Any], ...]


Planted = Mapping[str, Any]  # by configuration a subject, a model, or whatever else a measure of the claim takes


Plant = Callable[[int], Planted]


@dataclass(frozen=True)
class MeasureCall:
    """One call of a measure on any work, or on a model after some step; `version` is that of a registered claim."""

    measure: Callable[..., Measured]
    factors: Factors = ()
    step: int | None = None
    version: int | None = None

    @property
    def key(self) -> str:
        """The key of the result; it changes with the version of the measure, or its source."""
        by_version = self.is_keyed_by_version(self.measure)
        known_by = f"version {self.version}" if by_version else source_digest(self.measure)
        factors = ", ".join(f"{name}={key_text(value)}" for name, value in self.factors)
        at = "" if self.step is None else f" at step {self.step}"
        return f"{name_of(self.measure)}({factors}){at} {known_by}"

    def is_keyed_by_version(self, *functions: Callable[..., Any]) -> bool:
        """True if the version says what functions do: there is one, and they lie in packages."""
        return self.version is not None and all(in_package(m) for each in functions for m in modules_of(each))


@dataclass(frozen=True)
class Work:
    """Calls on one thing, which is read once for all of them."""

    calls: tuple[MeasureCall, ...] = field(default=(), kw_only=True)

    @property
    def name(self) -> str:
        """Name of the file that keeps the results."""
        raise NotImplementedError

    def fingerprint(self, step: int | None) -> str:
        """Changes with what calls at a step are on."""
        return ""

    def code(self, call: MeasureCall) -> str:
        """Changes with functions, beside the measure, that decide what a call gives."""
        return ""

    def load(self, step: int | None) -> Any:
        """The thing that calls at a step are on."""
        raise NotImplementedError

    def take(self, call: MeasureCall, on: Any) -> Measured:
        """The result of one call."""
        return call.measure(on, **dict(call.factors))


@dataclass(frozen=True)
class RunWork(Work):
    """Calls on the models of one run."""

    run: Run

    @property
    def name(self) -> str:
        """Name of the file that keeps the results."""
        return f"{self.run.label}/seed-{self.run.spec.seed:02d}"

    def fingerprint(self, step: int | None) -> str:
        """Changes with the specification, with what was logged and measured along training, and with the model."""
        run = self.run
        model = run.checkpoint_path(run.steps[-1] if step is None else step)
        return digest_of_files((run.path / "run.json", run.path / "metrics.jsonl", run.trajectory_path, model))

    def load(self, step: int | None) -> Subject:
        """The model after a step."""
        return subject(self.run, step)


@dataclass(frozen=True)
class ControlWork(Work):
    """Calls on one case of a control: what is planted is measured, or is what was measured, and is compared."""

    plant: Plant
    case: int
    compare: Callable[[Mapping[str, Measured]], Measured] | None

    @property
    def name(self) -> str:
        """Name of the file that keeps the results; claims that plant and compare the same share it."""
        what = name_of(self.plant) + ("" if self.compare is None else name_of(self.compare))
        return f"controls/{text_digest(what)}-{self.case}"

    def fingerprint(self, step: int | None) -> str:
        """Changes with the configurations that are planted."""
        return " ".join(configurations(self.plant))

    def code(self, call: MeasureCall) -> str:
        """Changes with the measure, the plant and the comparison."""
        functions = [each for each in (call.measure, self.plant, self.compare) if each is not None]
        digest = function_digest if call.is_keyed_by_version(*functions) else source_digest
        return f" {' '.join(map(digest, functions))}"

    def load(self, step: int | None) -> Planted:
        """The planted case."""
        return self.plant(self.case)

    def take(self, call: MeasureCall, on: Planted) -> Measured:
        """The result of one call, compared."""
        units: dict[str, Measured] = {}
        for name, thing in on.items():
            units[name] = thing if isinstance(thing, Mapping) else super().take(call, thing)
        return next(iter(units.values())) if self.compare is None else self.compare(units)


@dataclass(frozen=True)
class DrawWork(Work):
    """Calls on one draw, of claims that are about no model."""

    measure: Callable[..., Measured]
    draw: int

    @property
    def name(self) -> str:
        """Name of the file that keeps the results; claims with one measure (a claim and its rivals) share it."""
        return f"draws/{text_digest(name_of(self.measure))}-{self.draw}"

    def load(self, step: int | None) -> int:
        """The number of the draw."""
        return self.draw


@dataclass(frozen=True)
class ModelWork(Work):
    """Calls on one language model, whose name may carry a revision."""

    source: str
    device: str
    dtype: str

    @property
    def name(self) -> str:
        """Name of the file that keeps the results."""
        return f"models/{text_digest(f'{self.source} {self.dtype}')}"

    def fingerprint(self, step: int | None) -> str:
        """Changes with the model's files or its package, with the device, and with the library that reads it."""
        return f"{fingerprint(self.source)} on {self.device} by transformers {version('transformers')}"

    def load(self, step: int | None) -> HookedModel:
        """The language model."""
        return named_language_model(self.source, device=self.device, dtype=self.dtype)


def control_work(claim: Claim) -> dict[str, list[ControlWork]]:
    """The cases of every control of a claim that plants something."""
    planting = [(control, control.plant) for control in claim.controls if control.plant is not None]
    return {c.name: [ControlWork(plant, case, claim.compare) for case in range(c.n)] for c, plant in planting}


Results = dict[str, dict[str, Measured]]
"""Measurements by the name of the work and the key of the call."""


def merge_work(work: Sequence[Work]) -> list[Work]:
    """One piece a name, with the calls of all, so that a model is read once; runs of one task come together."""
    found: dict[str, Work] = {}
    for piece in work:
        before = found.get(piece.name)
        calls = piece.calls if before is None else (*before.calls, *piece.calls)
        found[piece.name] = replace(piece, calls=tuple(dict.fromkeys(calls)))
    return sorted(found.values(), key=lambda piece: repr(piece.run.spec.task) if isinstance(piece, RunWork) else "")


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
        if isinstance(piece, ModelWork):
            results[piece.name] = do_work(piece, store=store)
            if report:
                report(piece)
    for _ in range(ATTEMPTS):
        left = [piece for piece in work if piece.name not in results]
        try:
            for piece, found in zip(left, analyse_many(left, partial(do_work, store=store), jobs=jobs), strict=True):
                results[piece.name] = found
                if report:
                    report(piece)
        except BrokenProcessPool:
            continue
        return results
    raise RuntimeError(f"workers died {ATTEMPTS} times; what was measured is kept, the same command continues")


def do_work(piece: Work, *, store: Path | None) -> dict[str, Measured]:
    """One piece of work: what is kept is read, the rest measured and kept."""
    file = None if store is None else store / f"{piece.name}.json"
    kept = {} if file is None else read_entries(file)
    if file is not None and store is not None:
        check_entries(file, store, piece.name, kept)
    steps = {step: piece.fingerprint(step) for step in {call.step for call in piece.calls}}
    stamps = {call: _stamp(piece, call, steps[call.step]) for call in piece.calls}
    missing = [call for call in piece.calls if kept.get(call.key, {}).get("stamp") != stamps[call]]
    if missing:
        written, new = monotonic(), {}
        for i, (call, measured) in enumerate(_measure_calls(piece, missing), 1):
            new[call.key] = entry_of(piece.name, call.key, stamps[call], measured)
            if file is not None and (i == len(missing) or monotonic() - written > KEPT_EVERY):
                write_atomically(
                    file, json.dumps(read_entries(file) | new).encode(), shared=True
                )  # others add to it too
                written = monotonic()
        kept |= new
    return {
        call.key: {
            name: np.array(value, dtype=float) if isinstance(value, list) else float(value)
            for name, value in kept[call.key]["measured"].items()
        }
        for call in piece.calls
    }


def stamp_of(piece: Work, call: MeasureCall) -> str:
    """All that the present result of a call rests on."""
    return _stamp(piece, call, piece.fingerprint(call.step))


def _stamp(piece: Work, call: MeasureCall, fingerprint: str) -> str:
    return f"{instrument()} {fingerprint}{piece.code(call)}"


def _measure_calls(
    piece: Work, calls: Sequence[MeasureCall]
) -> Iterator[tuple[MeasureCall, dict[str, float | list[float]]]]:
    """Some calls with their results; those on one model together, since what is kept with it serves them all."""
    for step in dict.fromkeys(call.step for call in calls):
        on: Any = piece.load(step)
        for call in calls:
            if call.step == step:
                yield call, _plain(piece.take(call, on))


def _plain(measured: Measured) -> dict[str, float | list[float]]:
    return {name: np.asarray(value, dtype=float).tolist() for name, value in measured.items()}
