"""Differences between two specifications, field by field, in words that `mnemoscope train --set` takes.

What the seed alone decides (a task's own split of its mappings, say) is no difference.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from mnemoscope.core.presets import PRESETS, preset
from mnemoscope.core.specification import RunSpec

LONGEST = 48
"""Characters of a value from which it is cut."""


def differences(one: RunSpec, other: RunSpec) -> dict[str, tuple[Any, Any]]:
    """Differing fields such as `model.d_model` with both values; of unlike tasks `task` alone, not their fields."""
    found: dict[str, tuple[Any, Any]] = {}
    for name, ours, theirs in zip(("task", "model", "recipe"), one.configuration, other.configuration, strict=True):
        if type(ours) is not type(theirs):
            found[name] = (one.task.name, other.task.name)
            continue
        values = ((f.name, getattr(ours, f.name), getattr(theirs, f.name)) for f in dataclasses.fields(ours))
        found |= {f"{name}.{field}": (here, there) for field, here, there in values if here != there}
    return found


def changed(spec: RunSpec) -> dict[str, Any] | None:
    """The fields in which a run differs from the preset that it came from, as this is now, with the run's values.

    None: it came from no preset, or neither preset nor recipe is known here (a guest that was not imported).
    """
    name = spec.preset.partition("+")[0]
    if name not in PRESETS.names() or spec.recipe.name not in PRESETS.get(name).recipes:
        return None
    return {field: value for field, (_, value) in differences(preset(name, spec.recipe.name, spec.seed), spec).items()}


def changes_text(spec: RunSpec) -> str:
    """The changes from `changed`, such as `model.normalization=none, recipe.n_steps=500`; `?` where unknown."""
    found = changed(spec)
    return "?" if found is None else in_words(found)


def in_words(changes: Mapping[str, Any]) -> str:
    """Fields and their values."""
    return ", ".join(f"{field}={value_text(value)}" for field, value in changes.items())


def value_text(value: Any) -> str:
    """A value as YAML writes it, on one line and cut where it is long."""
    text = _yaml(value)
    if len(text) <= LONGEST:
        return text
    n = f" ({len(value)} values)" if isinstance(value, tuple | list) else ""
    return f"{text[: LONGEST - 8].rstrip(',')}…{n}"


def _yaml(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_yaml, value))}]"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {
            f.name: getattr(value, f.name) for f in dataclasses.fields(value) if getattr(value, f.name) != f.default
        }
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_yaml(each)}" for key, each in value.items()) + "}"
    return str(value)
