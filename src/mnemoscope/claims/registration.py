"""Registrations: what was fixed about a claim before its first run, kept in `registered.json` beside the claim.

A registration holds all that decides a verdict: criteria, gate, controls, units with their full configurations, seeds,
prompts, factors, rivals, and the version of the measure, which is written by hand. Digests of code are information:
code that moved and gives the same numbers leaves a claim as it was registered. Registrations from before versions were
counted have none; there the digests decide.

Beside it stands what the measure gave on the first case of every control, with the machine that computed it: the
effects that decide and the gate, to twelve digits, not as a digest, since a rounded number flips at the edge of its
rounding. An array is kept as its size, how many of its numbers are finite, and their mean, smallest and largest.

Two measurements agree if no number differs by more than a tolerance, relative where numbers are larger than 1. Measured
anew on the machine of the registration, by the same numerical version of the library, it is 1e-9: the same operations
give the same bits. Anywhere else, and for what may come from a store, it is 1e-5: models compute in float32, other
processors add in another order, and a logit near 10 moves by 1e-6. Where two candidates are nearly alike, a measure
that counts or takes the largest can differ by more on another machine. So other values of unmoved code elsewhere are
reported, and are no departure.

The file is committed with the claims. A registration that takes the place of another keeps it under `superseded`, with
the reason and the verdict that it led to. *Does not show* that a registration is older than the runs (the history of
the file does), nor what a measure gives where factors are varied, or on trained models.
"""

import json
import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from mnemoscope.claims.claim import GATE, Claim, Measured, Outcome
from mnemoscope.claims.fitness import check_fitness
from mnemoscope.claims.functions import configuration_digest, function_digest
from mnemoscope.claims.measures import MeasureCall, Results, Work, control_work, measure_all, merge_work
from mnemoscope.claims.replicates import average_prompts, expected_seeds
from mnemoscope.core import guests
from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import Configuration
from mnemoscope.core.version import NUMBERS
from mnemoscope.models.files import write_atomically

HERE = 1e-9
"""Tolerance for what was measured anew on the machine of the registration; for all else see `Control.elsewhere`."""
Values = Mapping[str, Mapping[str, Sequence[float | str]]]
"""Values by control and effect; a number that is not finite is a word, as JSON has none."""
FILE = "registered.json"
"""Registrations by the id of the claim."""
VALUES = "values"
"""Entry of a registration on file: what the measure gave on the controls."""


REGISTERED = "registered"
"""Entry of a registration on file: the date on which it was written."""


_APART = ("rivals", "version", "code", VALUES, "machine", REGISTERED, "superseded")
"""Entries that are compared otherwise than by equality, or not at all."""


def registration(claim: Claim, seeds: Sequence[int] = ()) -> dict[str, Any]:
    """All that decides a verdict on a claim and its rivals, as plain data for JSON; `seeds` are those of its system."""
    criteria = [
        {"name": part.name, "quantifier": part.quantifier, "margin": part.margin, "direction": part.direction}
        | ({} if part.bounds is None else {"bounds": list(part.bounds)})
        for part in claim.criteria
    ]
    gate = claim.gate
    fixed = {
        "criteria": criteria,
        "joined": claim.joined,
        "gate": None if gate is None else {"at_least": _finite(gate.at_least), "at_most": _finite(gate.at_most)},
        "replicates": {"kind": claim.replicate, "n": claim.n_replicates, "headline": claim.headline},
        "seeds": list(seeds),
        "units": {name: _unit(unit) for name, unit in claim.units.items()},
        "prompts": claim.prompts,
        "version": claim.version,
        "code": {what: function_digest(function) for what, function in functions_of(claim).items()},
        "controls": {c.name: {"kind": c.kind, "tolerated": c.tolerated, "n": c.n} for c in claim.controls},
        "factors": {name: [str(value) for value in values] for name, values in claim.factors.items()},
        "rivals": {rival.id: registration(rival) for rival in claim.rivals},
    }
    return json.loads(json.dumps(fixed, default=str))  # as it is read again


def differences(now: Mapping[str, Any], then: Mapping[str, Any], prefix: str = "") -> list[str]:
    """In what two registrations differ that decides: names of entries, those of rivals after the rival's id."""
    now, then = _with_versions(now), _with_versions(then)
    found = [prefix + name for name in now if name not in _APART and now[name] != then.get(name)]
    if None in (now["version"], then["version"]):
        found += [prefix + name for name in _changed_functions(now, then)]
    elif now["version"] != then["version"]:
        found.append(f"{prefix}version")
    rivals, before = now["rivals"], then.get("rivals", {})
    found += [f"{prefix}rival {id}" for id in {**rivals, **before} if (id in rivals) != (id in before)]
    for id in rivals:
        if id in before:
            found += differences(rivals[id], before[id], f"{id}: ")
    return found


def changed_functions(now: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
    """The functions whose code differs between two registrations, those of rivals after the rival's id."""
    found = _changed_functions(_with_versions(now), _with_versions(then))
    for id, rival in now["rivals"].items():
        if id in then["rivals"]:
            found += [f"{id}: {name}" for name in changed_functions(rival, then["rivals"][id])]
    return found


def _changed_functions(now: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
    code, before = now["code"], then["code"]
    return [name for name in {**code, **before} if code.get(name) != before.get(name)]


def _with_versions(fixed: Mapping[str, Any]) -> Mapping[str, Any]:
    """A registration in the form of today; one from before versions were counted has the version None."""
    if "code" in fixed:
        return fixed
    controls = fixed["controls"]
    plants = {f"plant of {name}": control["plant"] for name, control in controls.items()}
    code = {"measure": fixed["measure"], "compare": fixed["compare"], **plants}
    kept = {name: value for name, value in fixed.items() if name not in ("measure", "compare")}
    kept["controls"] = {
        name: {what: each for what, each in control.items() if what != "plant"} for name, control in controls.items()
    }
    return {**kept, "version": None, "code": {name: digest for name, digest in code.items() if digest is not None}}


def functions_of(claim: Claim) -> dict[str, Callable[..., Any]]:
    """The functions that decide what is measured for a claim, by what they are; its rivals have their own."""
    plants = {f"plant of {control.name}": control.plant for control in claim.controls}
    found = {"measure": claim.measure, "compare": claim.compare, **plants}
    return {what: function for what, function in found.items() if function is not None}


def _unit(unit: Configuration) -> dict[str, Any]:
    digest = configuration_digest(unit)
    return {"preset": unit.preset, "recipe": unit.recipe, "changes": dict(unit.changes), "configuration": digest}


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None


@dataclass(frozen=True, kw_only=True)
class Superseded:
    """An earlier form of a claim under the same id, `n` replicates of which `share` met its criteria.

    `reason` says why the claim is put otherwise now. The outcome is None where no verdict was kept, the recipe of the
    models None for a claim about no model.
    """

    reason: str
    outcome: Outcome | None = None
    share: float | None = None
    n: int = 0
    recipe: str | None = None


def machine() -> str:
    """The parts of a machine that decide the last bits: processor, torch's instructions on it, torch, our numbers."""
    model = platform.processor() or platform.machine()
    if (cpuinfo := Path("/proc/cpuinfo")).is_file():
        named = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(encoding="utf-8"), re.MULTILINE)
        model = named[1] if named else model
    return f"{model}, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}, numbers {NUMBERS}"


def measure_controls(
    claims: Iterable[Claim], *, jobs: int = 1, report: Callable[[Work], None] | None = None
) -> dict[str, Values]:
    """Measure the controls of claims and their rivals; values by id. `jobs` 0: one process per core.

    The measures must be functions that their names identify.
    """
    each = (one for claim in claims for one in (claim, *claim.rivals))
    asked = [(one, MeasureCall(one.measure)) for one in each if one.measure is not None]
    work = [replace(cases[0], calls=(call,)) for one, call in asked for cases in control_work(one).values()]
    return select_values(asked, measure_all(merge_work(work), jobs=jobs, store=None, report=report))


def select_values(asked: Iterable[tuple[Claim, MeasureCall]], results: Results) -> dict[str, Values]:
    """The values of claims and rivals, by id, among what was measured: those of the first case of every control."""
    found: dict[str, Values] = {}
    for claim, call in asked:
        first = {name: results[cases[0].name][call.key] for name, cases in control_work(claim).items()}
        if claim.of_language_models:
            first = {name: average_prompts(claim, case) for name, case in first.items()}
        found[claim.id] = {name: case_numbers(claim, case) for name, case in first.items()}
    return found


def case_numbers(claim: Claim, measured: Measured) -> dict[str, list[float | str]]:
    """The numbers to be kept of one case of a control."""
    names = [*(part.name for part in claim.criteria), GATE]
    return {name: list(map(_plain, _summary(measured[name]))) for name in names if name in measured}


def _summary(value: Any) -> list[float]:
    values = np.asarray(value, dtype=float)
    if not values.ndim:
        return [float(values)]
    finite = values[np.isfinite(values)]
    return [values.size, finite.size, *((finite.mean(), finite.min(), finite.max()) if finite.size else ())]


def _plain(value: float) -> float | str:
    return float(f"{value:.12g}") if np.isfinite(value) else str(float(value))


def distances(now: Values, then: Values) -> dict[str, float]:
    """The largest difference of two measurements, by control; infinite where a number stands in one only."""
    return {name: _largest(now.get(name, {}), then.get(name, {})) for name in {**now, **then}}


def _largest(now: Mapping[str, Sequence[float | str]], then: Mapping[str, Sequence[float | str]]) -> float:
    if set(now) != set(then):
        return np.inf
    pairs = [(np.array(now[name], dtype=float), np.array(then[name], dtype=float)) for name in now]
    return max((_distance(a, b) for a, b in pairs), default=0.0)


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return np.inf
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return np.inf
    a, b = a[finite], b[finite]
    return float((np.abs(a - b) / np.maximum(1.0, np.maximum(np.abs(a), np.abs(b)))).max(initial=0.0))


def read_registrations(directory: Path | None) -> dict[str, dict[str, Any]]:
    """Registrations by id in the file of a directory; none where there is no file."""
    if directory is None or not (file := directory / FILE).is_file():
        return {}
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}") from None


def package_of(claim: Claim) -> Path | None:
    """The directory of the guest that the measure of a claim belongs to; None where that is no package."""
    function = claim.measure
    while isinstance(function, partial):
        function = function.func
    owner = None if function is None else guests.guest_of(function.__module__)
    return None if owner is None else guests.guest_directory(owner)


@dataclass(frozen=True, kw_only=True)
class RegistrationCheck:
    """A claim compared with its registration.

    `departures` are None for a claim that is not registered. Moved code is no departure, nor are other values where
    code has not moved and another machine may have given them. `code` says in words which code changed since, or values
    on another machine; it is empty without changes. `off` is the largest difference between values now and then, if
    they were compared.
    """

    departures: tuple[str, ...] | None = None
    code: str = ""
    off: float | None = None


def check_registration(
    claim: Claim, seeds: Sequence[int], values: Mapping[str, Values] = MappingProxyType({}), *, anew: bool = False
) -> RegistrationCheck:
    """Compare a claim that is judged on these seeds with its registration.

    `values` are those of the measures on the controls of the claim and its rivals, by id; without them they are not
    compared. They are `anew` if they were measured just now, on this machine.
    """
    then = read_registrations(package_of(claim)).get(claim.id)
    if then is None:
        return RegistrationCheck()
    now, code, here = registration(claim, seeds), "", anew and then.get("machine") == machine()
    off, unlike = _compare_values(claim, values, then, here=here)
    if moved := changed_functions(now, then):
        found = "not checked here" if off is None else "differ" if unlike else "equal"
        code = f"code moved since registration ({', '.join(moved)}); values {found}"
    elif unlike and not here:
        code = f"values differ by {off:.1g} with the same code, as other machines may"
    departures = tuple(differences(now, then) or (unlike if moved or here else ()))
    return RegistrationCheck(departures=departures, code=code, off=off)


def _compare_values(
    claim: Claim, values: Mapping[str, Values], then: Mapping[str, Any], *, here: bool
) -> tuple[float | None, list[str]]:
    """The largest difference of values, None without any; and which are not as registered: `values` or a rival's."""
    kept, off, unlike = {claim.id: then, **then["rivals"]}, None, []
    for one in (claim, *claim.rivals):
        if one.id not in values or VALUES not in kept.get(one.id, {}):
            continue
        by = distances(values[one.id], kept[one.id][VALUES])
        allowed = {control.name: HERE if here else control.elsewhere for control in one.controls}
        off = max([off or 0.0, *by.values()])
        if any(each > allowed.get(name, HERE) for name, each in by.items()):
            unlike.append("values" if one is claim else f"{one.id}: values")
    return off, unlike


def registered_versions(claim: Claim) -> dict[str, int]:
    """The claim and its rivals, by id, whose version is that of their registration."""
    then = read_registrations(package_of(claim)).get(claim.id, {"rivals": {}})
    kept = {claim.id: then, **then["rivals"]}
    return {one.id: one.version for one in (claim, *claim.rivals)
            if kept.get(one.id, {}).get("version") == one.version}  # fmt: skip


def superseded_forms(claim: Claim) -> tuple[Superseded, ...]:
    """Earlier forms of a claim, the oldest first."""
    entries = read_registrations(package_of(claim)).get(claim.id, {}).get("superseded", [])
    return tuple(Superseded(reason=entry["reason"], **entry.get("verdict", {})) for entry in entries)


def register(
    claims: Sequence[Claim],
    directory: Path,
    *,
    reason: str | None = None,
    verdicts: Sequence[Mapping[str, Any]] = (),
) -> list[str]:
    """Add registrations to the file of a directory, that of the guest's package; return the ids of entries that
    changed.

    A registration that differs, in what decides or in its values, is superseded only with a `reason`. Where values are
    as registered, digests of code that moved are written anew. `verdicts` are records of earlier trials. A superseded
    form, now or before, keeps the verdict of the trial in which just that was fixed. A record that does not say what
    was fixed counts for the last. Raises InputError where a claim is not fit (`check_fitness`), is registered
    otherwise and there is no reason, or the file cannot be read.
    """
    content, changed = read_registrations(directory), []
    by_id = {record["id"]: record for record in verdicts}
    for claim in claims:
        before = content.get(claim.id, {})
        then = {name: entry for name, entry in before.items() if name != "superseded"}
        earlier = [{**entry} for entry in before.get("superseded", [])]
        now, different = _entry(claim, then, measured=reason is not None)
        if different and reason is None:
            raise InputError(
                f"claim {claim.id} is registered otherwise ({', '.join(different)}); a claim that was changed is "
                "another claim: give it another id, or say why with --supersede"
            )
        if different:
            earlier.append({"reason": reason, "registration": then})
        _add_verdict(earlier, by_id.get(claim.id))
        content[claim.id] = {**now, **({"superseded": earlier} if earlier else {})}
        if content[claim.id] != before:
            changed.append(claim.id)
    if changed:
        write_atomically(directory / FILE, (json.dumps(content, indent=1, sort_keys=True) + "\n").encode())
    return changed


def _entry(claim: Claim, then: Mapping[str, Any], *, measured: bool) -> tuple[Mapping[str, Any], list[str]]:
    """The registration of a claim with its values, and in what it differs from an earlier one, if that is not empty.

    Values are measured unless nothing has changed, code neither; with a difference only where `measured` asks for it.
    """
    now = registration(claim, expected_seeds(claim))
    different = differences(now, then) if then else []
    if different and not measured:
        return now, different
    if VALUES in then and not different and not changed_functions(now, then):
        return then, []
    values = measure_controls([claim])
    check_fitness(claim, values)
    for id, entry in {claim.id: now, **now["rivals"]}.items():
        entry[VALUES] = values.get(id, {})
    if then and not different:
        different = _compare_values(claim, values, then, here=then.get("machine") == machine())[1]
    date = then.get(REGISTERED) if then and not different else datetime.now(UTC).isoformat(timespec="seconds")
    return {**now, "machine": machine(), **({REGISTERED: date} if date else {})}, different


def _add_verdict(earlier: Sequence[dict[str, Any]], record: Mapping[str, Any] | None) -> None:
    """Give the first superseded registration without a verdict that of a record, if just that was fixed in it."""
    if record is None or not earlier:
        return
    fixed = record.get("fixed", earlier[-1]["registration"])
    for entry in earlier:
        if "verdict" not in entry and not differences(entry["registration"], fixed):
            recipe = next((unit["recipe"] for unit in record["units"].values()), None)
            entry["verdict"] = {**{name: record[name] for name in ("outcome", "share", "n")}, "recipe": recipe}
            return
