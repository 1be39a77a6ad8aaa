"""Dates of registrations and of runs in the history of git, by the author's clock.

A claim was registered in the first commit in which some `registered.json` asks its present question. Its runs are those
of its seeds in the archives: each is dated by the first commit with an archive that holds the same metrics, so that an
archive that was packed anew keeps its date. A claim about draws or language models, or one whose runs are not shipped,
is dated by the first commit with a verdict: a row of a report, or one in its entry that counts. A claim that was
asked anew with a higher version, of other questions, is dated by the first verdict since. Two in one commit count as
after: nothing shows their order.
"""

import io
import json
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from mnemoscope.claims.claim import Claim
from mnemoscope.claims.entry import FOLDER, Dated
from mnemoscope.claims.standing import Dates, question_of
from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import label_of
from mnemoscope.models.zoo import archive_file

_METRICS = re.compile(r"seed-(\d+)/metrics\.jsonl")
_ID = r"([A-Z]\d+(?:-[\w-]+)?)"
_VERDICT = re.compile(rf'\+(?:\s*"{_ID}": {{|\| *{_ID}\b.*\b(?:SUPPORTED|REFUTED|MIXED|INCONCLUSIVE))')
Moment = tuple[str, str]
"""The date of a commit and its digest."""
RunDates = Mapping[tuple[str, int, int], Moment]


def history_dates(
    claims: Mapping[str, Claim], registrations: Mapping[str, Mapping[str, Any]], place: Path
) -> dict[str, Dates]:
    """The dates of claims in the repository that holds `place`; InputError where git knows none.

    Registrations that are not committed yet have no entry.
    """
    asked, runs, verdicts, _ = _moments(*_root_and_head(place))
    found = {}
    for id, registration in registrations.items():
        question = question_of(registration)
        if (registered := asked.get((id, question))) is None:
            continue
        judged = [each for each in verdicts.get(id, ()) if each >= registered or not _is_new_measure(registration)]
        first = min(_run_dates(claims[id], registration["seeds"], runs), default=min(judged, default=None))
        found[id] = Dates(question=question, registered=_dated(registered), runs=first and _dated(first))
    return found


def judging_commits(place: Path) -> Mapping[tuple[str, str], str]:
    """The first commit with each verdict of an entry, by the id of the claim and the date on which it was judged.

    Raises InputError where git knows no repository that holds `place`.
    """
    return _moments(*_root_and_head(place))[-1]


def _root_and_head(place: Path) -> tuple[Path, str]:
    return (
        Path(_git(place, "rev-parse", "--show-toplevel").decode().strip()),
        _git(place, "rev-parse", "HEAD").decode().strip(),
    )


@cache
def _moments(
    root: Path, head: str
) -> tuple[Mapping[tuple[str, str], Moment], RunDates, Mapping[str, Collection[Moment]], Mapping[tuple[str, str], str]]:
    """The moments of questions, runs and verdicts up to the commit `head`, and the commits that judged.

    It takes minutes, so it is read once.
    """
    return _questions(root), _runs(root), *_verdicts(root)


def _dated(moment: Moment) -> Dated:
    return Dated(date=moment[0], commit=moment[1])


def _is_new_measure(registration: Mapping[str, Any]) -> bool:
    """True if all earlier forms of a claim had a lower version."""
    earlier = [form["registration"].get("version") or 1 for form in registration.get("superseded", ())]
    return bool(earlier) and registration.get("version", 1) > max(earlier)


def _run_dates(claim: Claim, seeds: list[int], runs: RunDates) -> list[Moment]:
    """The dates of the runs that a claim is judged on."""
    labels = [label_of(unit.spec(0)) for unit in claim.units.values()]
    packed = {(label, seed): crc for label in labels for seed, crc in _seeds(archive_file(label)).items()}
    keys = [(label, seed, packed[label, seed]) for label in labels for seed in seeds if (label, seed) in packed]
    return [runs[key] for key in keys if key in runs]


def _seeds(file: Path | None) -> dict[int, int]:
    return {} if file is None else _checksums(file.read_bytes())


def _checksums(content: bytes) -> dict[int, int]:
    """The checksum of the metrics of every seed in an archive; none of what is no archive."""
    try:
        files = ZipFile(io.BytesIO(content)).infolist()
    except BadZipFile:
        return {}
    return {int(parts[1]): info.CRC for info in files if (parts := _METRICS.fullmatch(info.filename))}


def _questions(root: Path) -> dict[tuple[str, str], Moment]:
    """The moment of each question by the id of the claim."""
    found: dict[tuple[str, str], Moment] = {}
    for moment, _, content in _versions(root, "*registered.json"):
        for id, entry in json.loads(content).items():
            found.setdefault((id, question_of(entry)), moment)
    return found


def _runs(root: Path) -> RunDates:
    """The moment of each run by configuration, seed and the checksum of its metrics."""
    found: dict[tuple[str, int, int], Moment] = {}
    for moment, file, content in _versions(root, "*.zip"):
        for seed, crc in _checksums(content).items():
            found.setdefault((Path(file).stem, seed, crc), moment)
    return found


def _verdicts(root: Path) -> tuple[dict[str, set[Moment]], dict[tuple[str, str], str]]:
    """The moments of verdicts on each claim, and the first commit with each verdict of an entry, by claim and date.

    Moments are those of rows of tables, of verdicts.json in earlier commits, and of entries.
    """
    found: dict[str, set[Moment]] = {}
    commits: dict[tuple[str, str], str] = {}
    moment = "", ""
    text = _git(root, "log", "--reverse", "--format=commit %aI %H", "-p", "-U0", "--", "*.md", "*verdicts.json")
    for line in text.decode(errors="replace").splitlines():
        if line.startswith("commit "):
            _, date, commit = line.split()
            moment = date, commit
        elif parts := _VERDICT.match(line):
            found.setdefault(parts[1] or parts[2], set()).add(moment)
    for moment, file, content in _versions(root, f"*{FOLDER}/*.json"):
        id, verdicts = Path(file).stem, json.loads(content).get("verdicts", ())
        if any(verdict.get("superseded") is None for verdict in verdicts):
            found.setdefault(id, set()).add(moment)
        for judged in filter(None, (verdict.get("judged") for verdict in verdicts)):
            commits.setdefault((id, judged["date"]), moment[1])
    return found, commits


def _versions(root: Path, pattern: str) -> Iterator[tuple[Moment, str, bytes]]:
    """Moment, path and content of every version of the files that match a pattern, the oldest first."""
    commits = _git(root, "log", "--reverse", "--format=%H %aI", "--", pattern).decode().splitlines()
    for commit, date in sorted((line.split() for line in commits), key=lambda pair: pair[1]):
        for line in _git(root, "diff-tree", "--root", "-m", "-r", "--no-commit-id", commit).decode().splitlines():
            meta, file = line.split("\t")
            blob = meta.split()[3]
            if fnmatch(file, pattern) and set(blob) != {"0"}:
                yield (date, commit), file, _git(root, "cat-file", "blob", blob)


def _git(place: Path, *words: str) -> bytes:
    try:
        return subprocess.run(["git", "-C", str(place), *words], capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise InputError(f"{place} has no history of git, where dates could be read: {error}") from None
