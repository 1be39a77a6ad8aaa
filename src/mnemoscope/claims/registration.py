"""The record of what was fixed about a claim before its first run, as plain data, and its differences from today.

A registration holds all that decides a verdict: criteria, gate, controls, units with their full configurations, seeds,
prompts, factors, rivals, and the version of the measure, which is written by hand. What the measure gave on the claim's
controls stands beside it once the claim is registered (`claims.behaviour`).

Digests of code are kept as information: code that moved and gives the same numbers leaves a claim as it was registered.
Registrations from before versions were counted have none; there the digests decide.

The digest of a function is of its syntax tree without docstrings, and of the functions and constants of its guest (or
its module, where that belongs to no guest) that it names, and so on. Formatting, comments and the library do not change
it, nor does the last bit of a number, in which processors differ.
"""

import ast
import hashlib
import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from types import FunctionType, ModuleType
from typing import Any

from mnemoscope.claims.claim import Claim
from mnemoscope.core import guests
from mnemoscope.core.presets import SYSTEMS, Configuration

LIBRARY = f"{__name__.partition('.')[0]}."

VALUES = "values"
"""Entry of a registration on file: what the measure gave on the controls."""
_APART = ("rivals", "version", "code", VALUES, "machine", "superseded")
"""Entries that are compared otherwise than by equality, or not at all."""


def registration(claim: Claim, seeds: Sequence[int] = ()) -> dict[str, Any]:
    """All that decides a verdict on a claim and its rivals, as plain data for JSON; `seeds` are those of its system."""
    criteria = [
        {"name": part.name, "quantifier": part.quantifier, "margin": part.margin, "direction": part.direction}
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


def expected_seeds(claim: Claim) -> list[int]:
    """The seeds on which the system of a claim judges it: those of the runs behind its verdicts that all units have."""
    each = _planned(claim)
    return sorted(filter(claim.counts, set.intersection(*each))) if each else []


def that_count(claim: Claim, seeds: Iterable[int]) -> list[int]:
    """The seeds that a claim is judged on: those that it counts and, if its system plans runs, all outside the plan."""
    planned = set().union(*_planned(claim))
    return sorted(seed for seed in seeds if claim.counts(seed) or (planned and seed not in planned))


def _planned(claim: Claim) -> list[set[int]]:
    """The seeds of the runs behind the verdicts of the claim's system, by unit; none without such a system."""
    if not claim.units or claim.system not in SYSTEMS.names():
        return []
    judged = SYSTEMS.get(claim.system).judged
    each = []
    for unit in claim.units.values():
        of = [part for part in judged if unit.preset in part.presets]
        of = [part for part in of if (unit.recipe, unit.changes) == (part.recipe, part.changes)]
        each.append({seed for part in of for seed in part.seeds})
    return each


def differences(now: Mapping[str, Any], then: Mapping[str, Any], prefix: str = "") -> list[str]:
    """In what two registrations differ that decides: names of entries, those of rivals after the rival's id."""
    now, then = _numbered(now), _numbered(then)
    found = [prefix + name for name in now if name not in _APART and now[name] != then.get(name)]
    if None in (now["version"], then["version"]):
        found += [prefix + name for name in _code_moved(now, then)]
    elif now["version"] != then["version"]:
        found.append(f"{prefix}version")
    rivals, before = now["rivals"], then.get("rivals", {})
    found += [f"{prefix}rival {id}" for id in {**rivals, **before} if (id in rivals) != (id in before)]
    for id in rivals:
        if id in before:
            found += differences(rivals[id], before[id], f"{id}: ")
    return found


def code_moved(now: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
    """The functions whose code differs between two registrations, those of rivals after the rival's id."""
    found = _code_moved(_numbered(now), _numbered(then))
    for id, rival in now["rivals"].items():
        if id in then["rivals"]:
            found += [f"{id}: {name}" for name in code_moved(rival, then["rivals"][id])]
    return found


def _code_moved(now: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
    code, before = now["code"], then["code"]
    return [name for name in {**code, **before} if code.get(name) != before.get(name)]


def _numbered(fixed: Mapping[str, Any]) -> Mapping[str, Any]:
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


def function_digest(function: Callable[..., Any]) -> str:
    """SHA-256, 16 digits, of what a function of a guest does, as the module says; bound arguments count."""
    state = hashlib.sha256()
    for text in _texts(function, set()):
        state.update(text.encode() + b"\0")
    return state.hexdigest()[:16]


def _texts(value: Any, seen: set[str]) -> list[str]:
    """The source of a value, and of all within its guest that it rests on."""
    if isinstance(value, partial):
        return _texts((value.func, value.args, value.keywords), seen)
    if isinstance(value, Mapping):
        return [text for pair in sorted(value.items(), key=repr) for text in _texts(pair, seen)]
    if isinstance(value, tuple | list):
        return [text for each in value for text in _texts(each, seen)]
    if isinstance(value, float):
        return [repr(_rounded(value))]
    if not isinstance(value, FunctionType | type):
        return [] if " at 0x" in (text := repr(value)) else [text]
    name, home = f"{value.__module__}.{value.__qualname__}", _home(value)
    if name in seen:
        return []
    seen.add(name)
    if home.startswith(LIBRARY) and guests.owner(value.__module__) is None:
        return [name]
    source, words = _source(value)
    names = vars(sys.modules[value.__module__])
    texts = [name, source]
    for used in (names[word] for word in words if word in names):
        foreign = isinstance(used, FunctionType | type) and _home(used) != home
        if not isinstance(used, ModuleType):
            texts += [_called(used)] if foreign else _texts(used, seen)
    return texts


def _called(function: Callable[..., Any] | type) -> str:
    """The name of something foreign; that of what it stands for, if it says so."""
    return vars(function).get("STANDS_FOR", f"{function.__module__}.{function.__qualname__}")


def _home(function: Callable[..., Any] | type) -> str:
    """The guest that a function belongs to, or its module."""
    return guests.owner(function.__module__) or function.__module__


@cache
def _source(function: Callable[..., Any] | type) -> tuple[str, tuple[str, ...]]:
    """The syntax tree of a function or class without docstrings, and the names in it; nothing without a source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError):
        return "", ()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return _outline(tree), tuple(sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}))


def _outline(node: Any) -> str:
    """A syntax tree as text, without what is empty: versions of Python differ in that."""
    if isinstance(node, list):
        return f"[{', '.join(map(_outline, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = (f"{name}={_outline(value)}" for name, value in ast.iter_fields(node) if value not in (None, []))
    return f"{type(node).__name__}({', '.join(fields)})"


def configurations(value: Any) -> list[str]:
    """The configurations bound to a function, as presets and recipes make them today, as digests."""
    match value:
        case Configuration():
            return [_unit(value)["configuration"]]
        case partial():
            return configurations((value.args, value.keywords))
        case Mapping():
            return configurations(tuple(value.values()))
        case tuple() | list():
            return [digest for each in value for digest in configurations(each)]
    return []


def _unit(unit: Configuration) -> dict[str, Any]:
    spec = {name: value for name, value in unit.spec(0).to_dict().items() if name != "seed"}
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]
    return {"preset": unit.preset, "recipe": unit.recipe, "changes": dict(unit.changes), "configuration": digest}


def _rounded(value: float) -> float:
    """A number to nine significant digits; what is within 1e-12 of zero is zero."""
    return 0.0 if abs(value) < 1e-12 else float(f"{value:.9g}")


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None
