"""What was fixed about a claim before its first run, as plain data, and what differs from it today.

A registration holds all that decides a verdict: criteria, gate, controls, units with their full configurations, seeds,
prompts, factors, rivals, and a digest of the source of the measure. It is committed beside the claims of a system
(`registered.json`), so that a margin that was changed after a verdict is seen, whatever the id says.

The digest of a function is of its syntax tree without docstrings, and of the functions and constants of its guest that
it names, and so on. Formatting, comments and the library do not change it.

*Does not show* that a registration is older than the runs; the history of the file does.
"""

import ast
import hashlib
import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

from mnemoscope.core import guests
from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import Configuration
from mnemoscope.judging.claim import Claim, Control

FILE = "registered.json"
"""Of a system's package: registrations by the id of the claim."""


def registration(claim: Claim, seeds: Sequence[int] = ()) -> dict[str, Any]:
    """All that decides a verdict on a claim, as plain data for JSON.

    Args:
        claim: With its rivals.
        seeds: On which its system judges it; none for a claim about no model.
    """
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
        "measure": None if claim.measure is None else function_digest(claim.measure),
        "compare": None if claim.compare is None else function_digest(claim.compare),
        "controls": {control.name: _control(control) for control in claim.controls},
        "factors": {name: [str(value) for value in values] for name, values in claim.factors.items()},
        "rivals": {rival.id: registration(rival) for rival in claim.rivals},
    }
    return json.loads(json.dumps(fixed, default=str))  # as it is read again


def differences(claim: Claim, seeds: Sequence[int], registered: Mapping[str, Any]) -> list[str]:
    """What of a claim is not as it was registered: names of entries, those of rivals after the rival's id."""
    return _differences(registration(claim, seeds), registered)


def _differences(now: Mapping[str, Any], then: Mapping[str, Any], prefix: str = "") -> list[str]:
    found = [prefix + name for name in now if name != "rivals" and now[name] != then.get(name)]
    rivals, before = now["rivals"], then.get("rivals", {})
    found += [f"{prefix}rival {id}" for id in {**rivals, **before} if (id in rivals) != (id in before)]
    for id in rivals:
        if id in before:
            found += _differences(rivals[id], before[id], f"{id}: ")
    return found


def registered(directory: Path | None) -> dict[str, dict[str, Any]]:
    """Registrations by id that a guest's package holds; none where it holds no such file.

    Raises:
        InputError: The file cannot be read.
    """
    if directory is None or not (file := directory / FILE).is_file():
        return {}
    try:
        return json.loads(file.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}") from None


def function_digest(function: Callable[..., Any]) -> str:
    """SHA-256, 16 digits, of what a function of a guest does, as the module says; bound arguments count."""
    state = hashlib.sha256()
    for text in _texts(function, set()):
        state.update(text.encode() + b"\0")
    return state.hexdigest()[:16]


def _texts(value: Any, seen: set[str]) -> list[str]:
    """The source of a value and of all it rests on within its guest."""
    if isinstance(value, partial):
        parts = (value.func, *value.args, *(word for pair in sorted(value.keywords.items()) for word in pair))
        return [text for part in parts for text in _texts(part, seen)]
    if not isinstance(value, FunctionType | type):
        return [repr(value)]
    name, home = f"{value.__module__}.{value.__qualname__}", guests.owner(value.__module__)
    if home is None and value.__module__.split(".")[0] == __name__.split(".")[0]:
        return [name]  # of the library
    if name in seen:
        return []
    seen.add(name)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(value)))
    except (OSError, TypeError):
        return [name]
    texts = [ast.dump(_without_docstrings(tree))]
    for word in sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}):
        used = vars(sys.modules[value.__module__]).get(word)
        if isinstance(used, FunctionType | type) and guests.owner(used.__module__) == home:
            texts += _texts(used, seen)
        elif isinstance(used, bool | int | float | str | tuple | frozenset | partial | Configuration):
            texts += [word, *_texts(used, seen)]
    return texts


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return tree


def _unit(unit: Configuration) -> dict[str, Any]:
    spec = {name: value for name, value in unit.spec(0).to_dict().items() if name != "seed"}
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]
    return {"preset": unit.preset, "recipe": unit.recipe, "changes": dict(unit.changes), "configuration": digest}


def _control(control: Control) -> dict[str, Any]:
    plant = None if control.plant is None else function_digest(control.plant)
    return {"kind": control.kind, "tolerated": control.tolerated, "n": control.n, "plant": plant}


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None
