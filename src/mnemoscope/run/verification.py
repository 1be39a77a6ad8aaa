"""Verification of runs: which of them are shown to be independent trainings, and by what.

A run is *verified* if its final weights are those that were written down at the end of training, and they are tied to
its seed: they descend from its initial weights, or a replay of its first steps agrees. It is *unverified* if nothing
speaks against it and that cannot be shown. It is *refused* if something speaks against it.

*Does not show* which runs were never handed in.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.seeding import generator
from mnemoscope.models.checkpoint import weights_digest
from mnemoscope.models.independence import Inspection, inspect_runs, shared_parts, shared_sentence
from mnemoscope.models.manifest import ManifestEntry, read_manifest, write_manifest
from mnemoscope.models.run import Run, by_label, machine, open_run
from mnemoscope.models.zoo import read_archive
from mnemoscope.run.executor import analyse_many
from mnemoscope.training.origin import expected_origin
from mnemoscope.training.replay import HALF, Replay, replay

State = Literal["verified", "unverified", "refused"]
Replays = Literal["one", "all", 0]
ALL_REPLAYS = ("one", "all", 0)


@dataclass(frozen=True, kw_only=True)
class RunVerification:
    """The state of one run, with what was checked, what could not be, and why it is refused.

    `str` gives one line of plain text.
    """

    run: Run
    state: State
    checked: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    problem: str = ""
    replayed: Replay | None = None

    def __str__(self) -> str:
        reasons = {"verified": self.checked, "unverified": self.missing, "refused": (self.problem,)}[self.state]
        return f"{self.run.label}, seed {self.run.spec.seed}: {self.state}; {'; '.join(reasons)}"


@dataclass(frozen=True, kw_only=True)
class SetVerification:
    """The runs of one configuration, in the order of their seeds. `str` gives one line of plain text."""

    label: str
    runs: tuple[RunVerification, ...]
    shared: tuple[str, ...] = ()
    """Parts that all seeds share, such as `initial weights` or `facts`."""

    def count(self, state: State) -> int:
        """The number of runs in a state."""
        return sum(run.state == state for run in self.runs)

    @property
    def word(self) -> State:
        """`refused` if one run is, else `unverified` if one is, else `verified`."""
        return "refused" if self.count("refused") else "unverified" if self.count("unverified") else "verified"

    def __str__(self) -> str:
        counts = ", ".join(f"{self.count(state)} {state}" for state in get_args(State) if self.count(state))
        n_replayed = sum(run.replayed is not None for run in self.runs)
        sentence = shared_sentence(self.shared)
        return f"{self.label}: {counts} ({n_replayed} replayed){f'; {sentence}' if sentence else ''}"


def verify_runs(runs: Sequence[Run], replays: Replays = "one", *, n_steps: int = 20) -> list[SetVerification]:
    """Verify finished runs, one value per configuration.

    `replays` says how many runs of each configuration are replayed for `n_steps` steps or more: `one`, drawn by the
    runs' own seeds, `all`, or 0. Raises InputError where a seed occurs twice, or `replays` is something else.
    """
    one_of("replays", replays, ALL_REPLAYS)
    return [_verify_set(label, group, replays, n_steps) for label, group in by_label(runs).items()]


def list_archive(file: Path, replays: Replays = "all", *, jobs: int = 1) -> None:
    """Write an archive into the manifest beside it: digests of its runs, and what `replays` of them agreed with.

    Raises InputError where a run is refused, or files are damaged.
    """
    one_of("replays", replays, ALL_REPLAYS)
    packed = read_archive(file)
    with tempfile.TemporaryDirectory() as place, packed.open() as files:
        files.extractall(place)
        runs = [open_run(Path(place) / name) for name in packed.steps]
        replayed = runs if replays == "all" else [runs[_draw(runs)]] if replays else []
        listed = analyse_many([(run, run in replayed) for run in runs], _list_run, jobs=jobs)
        digests = {run.spec.seed: each for run, each in zip(runs, listed, strict=True)}
    entry = ManifestEntry(sha256=packed.digest, machine=machine(), runs=digests)
    write_manifest(file.parent, {**read_manifest(file.parent), packed.label: entry})


def _list_run(work: tuple[Run, bool]) -> dict[str, str]:
    """The digests of a run, and what its replay agreed with, if it is replayed."""
    run, replayed = work
    expected = expected_origin(run.spec)
    digests = {name: expected[name] for name in ("initial_weights", "first_batches")}
    digests["final_weights"] = weights_digest(run.checkpoint_path(run.last_step))[1]
    if not replayed:
        return digests
    found = replay(run)
    if not found.agrees:
        raise InputError(f"{run.path} is not what its seed {run.spec.seed} gives: {found}; train the run again")
    return {**digests, "replay": str(found)}


def _verify_set(label: str, runs: Sequence[Run], replays: Replays, n_steps: int) -> SetVerification:
    found = inspect_runs(runs)
    chosen = range(len(found)) if replays == "all" else [_draw(runs)] if replays else []
    verified = [_verify(each, n_steps if i in chosen else None) for i, each in enumerate(found)]
    return SetVerification(label=label, runs=tuple(verified), shared=shared_parts(runs))


def _draw(runs: Sequence[Run]) -> int:
    """The run that is replayed where one is: another one for other seeds and other weights."""
    name = " ".join(f"{run.spec.seed} {run.final_weights}" for run in runs)
    return int(generator(0, "replay", name).initial_seed() % len(runs))


def _verify(inspection: Inspection, n_steps: int | None) -> RunVerification:
    """The state of a run; `n_steps` of it are replayed, none: it is not replayed."""
    run, checked, missing = inspection.run, [*inspection.checked], [*inspection.missing]
    if inspection.problem:
        return RunVerification(run=run, state="refused", problem=inspection.problem)
    replayed, problem = None, _compare_batches(run, checked, missing)
    if n_steps is not None and not problem:
        try:
            replayed = replay(run, min(n_steps, run.last_step))
        except InputError as error:
            return RunVerification(run=run, state="refused", problem=str(error))
        if replayed.agrees:
            checked.append(str(replayed))
        elif _contradicts(replayed, run):
            problem = f"{run.path} is not what its seed {run.spec.seed} gives: {replayed}; train the run again"
        else:
            missing.append(str(replayed))
    if problem:
        return RunVerification(run=run, state="refused", problem=problem, replayed=replayed)
    if listed := run.origin.get("replay"):
        checked.append(f"when it was listed: {listed}")
    replays = listed or (replayed is not None and replayed.agrees)
    tied = inspection.resembles or (inspection.resembles is False and replays)
    return RunVerification(
        run=run,
        state="verified" if tied and inspection.recorded else "unverified",
        checked=tuple(checked),
        missing=tuple(missing),
        replayed=replayed,
    )


def _compare_batches(run: Run, checked: list[str], missing: list[str]) -> str:
    """Compare the digest of the first batches; returns why the run is refused."""
    written = run.origin.get("first_batches")
    if written is None:
        missing.append("no digest of the first batches was written down")
    elif written == expected_origin(run.spec)["first_batches"]:
        checked.append("the first batches follow from the seed")
    elif run.origin.get("machine") == machine():
        return f"{run.path / 'run.json'} does not name the first batches of seed {run.spec.seed}; train the run again"
    else:
        missing.append("the first batches were drawn on another kind of machine")
    return ""


def _contradicts(replayed: Replay, run: Run) -> bool:
    """True if a replay differs by more than another machine explains; on the same one any difference does."""
    if not any(replayed.compared.values()):
        return False
    known = run.origin.get("machine") == machine() and run.origin.get("device", "cpu") == "cpu"
    return known or max(replayed.difference, replayed.end) > HALF
