"""Named configurations, the published systems that they make up, and differences between configurations in words."""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.guests import Registry
from mnemoscope.core.protocols import Task
from mnemoscope.core.specification import ModelSpec, Recipe, RunSpec, replace_fields


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A named configuration with its recipes; with a seed it becomes a RunSpec.

    >>> preset = ms.PRESETS.get("v3")
    >>> preset.model.n_heads, sorted(preset.recipes)
    (2, ['published', 'quick'])
    """

    summary: str
    task: Task
    model: ModelSpec
    recipes: Mapping[str, Recipe] = field(hash=False)
    sizes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    """The fields that differ under each recipe, such as {"published": {"task.length": 256}}."""


PRESETS: Registry[Preset] = Registry("preset", "presets")
"""Every configuration by name: `PRESETS.names()` lists them, `PRESETS.get(name)` gives one."""


def recipes() -> list[str]:
    """Names of the recipes that some preset has."""
    return list(dict.fromkeys(recipe for name in PRESETS.names() for recipe in PRESETS.get(name).recipes))


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The common part of replicates: a preset under one of its recipes, with fields changed.

    >>> ms.Configuration(preset="v3", recipe="quick", changes=(("model.n_heads", 1),)).spec(0).model.n_heads
    1
    """

    preset: str
    recipe: str = "quick"
    changes: tuple[tuple[str, Any], ...] = ()
    """Fields and their values, such as ("model.d_model", 64); a mapping from fields to values will do."""

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "changes", tuple(dict(self.changes).items()))
        except (TypeError, ValueError):
            expected = 'pairs of a field and a value, such as (("recipe.n_steps", 300),)'
            raise InputError(f"the changes of a configuration must be {expected}; got {self.changes!r}") from None

    def spec(self, seed: int) -> RunSpec:
        """The run of one seed; errors are those of `preset`."""
        return preset(self.preset, self.recipe, seed, changes=dict(self.changes))

    def changed(self, field: str, value: Any) -> "Configuration":
        """The same with another recipe (`recipe`), or another value of a field such as `model.normalization`."""
        if field == "recipe":
            return replace(self, recipe=value)
        return replace(self, changes=tuple(sorted({**dict(self.changes), field: value}.items())))


@dataclass(frozen=True, kw_only=True)
class TrainingSet:
    """A share of a reproduction: presets under one recipe, over some seeds.

    >>> ms.TrainingSet(recipe="quick", presets=("v3",), seeds=(0, 1)).packed
    True
    """

    recipe: str
    presets: tuple[str, ...]
    seeds: tuple[int, ...]
    changes: tuple[tuple[str, Any], ...] = ()
    """Fields that differ from the presets, as in `Configuration`."""
    called: str = ""
    """The changes in a word, which stands between preset and recipe in labels, such as `no-norm`."""
    packed: bool = True
    """True if the zoo holds these runs where they are behind verdicts; else they are too large for it."""

    def specs(self, seeds: Sequence[int] | None = None) -> list[RunSpec]:
        """The runs of all its presets; `seeds` take the place of those in the set."""
        units = [Configuration(preset=name, recipe=self.recipe, changes=self.changes) for name in self.presets]
        return [unit.spec(seed) for unit in units for seed in (self.seeds if seeds is None else seeds)]


@dataclass(frozen=True, kw_only=True)
class System:
    """The runs that `reproduce` trains for a published system; none for one whose claims are all about draws.

    >>> [plan.presets[0] for plan in ms.SYSTEMS.get("tiny-recall").quick]
    ['v3']
    """

    summary: str
    quick: tuple[TrainingSet, ...]
    full: tuple[TrainingSet, ...]
    """With `--full`."""
    shipped: tuple[TrainingSet, ...] = ()
    """The runs in the zoo, behind the verdicts; none: those that `full` names."""
    compact: bool = False
    """True if the zoo keeps compact checkpoints and trajectories (`models.packing`)."""
    default: str | None = None
    """Preset that `train` takes where none is named, and that a report opens with. Commands to which no system is named
    take the first that has one."""

    @property
    def judged(self) -> tuple[TrainingSet, ...]:
        """The runs behind the verdicts."""
        return self.shipped or self.full


SYSTEMS: Registry[System] = Registry("system", "presets")
"""Every system by name, with its training plans."""


def preset(name: str, recipe: str = "quick", seed: int = 0, *, changes: Mapping[str, Any] | None = None) -> RunSpec:
    """The run of a preset under one of its recipes and a seed.

    `changes` are fields to change, such as {"model.d_model": 64}; the label then carries a digest of them. Raises
    InputError where there is no such preset or recipe, a change names no field, or a value is refused.

    >>> ms.preset("v3", "quick", seed=1, changes={"model.n_heads": 1}).model.n_heads
    1
    """
    found = PRESETS.get(name)
    one_of("recipe", recipe, found.recipes)
    parts: dict[str, Any] = {"task": found.task, "model": found.model, "recipe": found.recipes[recipe]}
    by_part: dict[str, dict[str, Any]] = {}
    for key, value in {**found.sizes.get(recipe, {}), **(changes or {})}.items():
        part, _, name_of_field = key.partition(".")
        one_of("the first word of a change", part, parts)
        by_part.setdefault(part, {})[name_of_field] = value
    for part, fields in by_part.items():  # together: on its own a change may contradict the others
        parts[part] = replace_fields(parts[part], fields, part)
    if changes:  # by the values that they became: 0 and 0.0 are one rate, a list and a tuple the same steps
        named = sorted((key, getattr(parts[key.partition(".")[0]], key.partition(".")[2])) for key in changes)
        name = f"{name}+{hashlib.sha256(repr(named).encode()).hexdigest()[:6]}"
    return RunSpec(**{**parts, "task": parts["task"].for_seed(seed)}, seed=seed, preset=name)


def label_of(spec: RunSpec) -> str:
    """Preset and recipe, as `RunSpec.label`; changes that some system has a word for appear as that word."""
    if "+" not in spec.preset:
        return spec.label
    return f"{names_with_words().get(spec.preset, spec.preset)}-{spec.recipe.name}"


def names_with_words(systems: Iterable[System] | None = None) -> dict[str, str]:
    """The name with the word of its system for changes, by the name of a preset with a digest of them."""
    if systems is None:
        systems = map(SYSTEMS.get, SYSTEMS.names())
    parts = [part for system in systems for part in (*system.quick, *system.full, *system.shipped) if part.called]
    return {
        preset(name, part.recipe, changes=dict(part.changes)).preset: f"{name}-{part.called}"
        for part in parts
        for name in part.presets
    }


MAX_VALUE_LENGTH = 48
"""Characters of a value from which it is cut."""


def differing_fields(one: RunSpec, other: RunSpec) -> dict[str, tuple[Any, Any]]:
    """Differing fields such as `model.d_model` with both values; of unlike tasks `task` alone, not their fields."""
    found: dict[str, tuple[Any, Any]] = {}
    for name, ours, theirs in zip(("task", "model", "recipe"), one.configuration, other.configuration, strict=True):
        if type(ours) is not type(theirs):
            found[name] = (one.task.name, other.task.name)
            continue
        values = ((f.name, getattr(ours, f.name), getattr(theirs, f.name)) for f in dataclasses.fields(ours))
        found |= {f"{name}.{field}": (here, there) for field, here, there in values if here != there}
    return found


def changed_fields(spec: RunSpec) -> dict[str, Any] | None:
    """The fields in which a run differs from the preset that it came from, as this is now, with the run's values.

    None: it came from no preset, or neither preset nor recipe is known here (a guest that was not imported).
    """
    name = spec.preset.partition("+")[0]
    if name not in PRESETS.names() or spec.recipe.name not in PRESETS.get(name).recipes:
        return None
    return {
        field: value for field, (_, value) in differing_fields(preset(name, spec.recipe.name, spec.seed), spec).items()
    }


def changes_text(spec: RunSpec) -> str:
    """The changes from `changed`, such as `model.normalization=none, recipe.n_steps=500`; `?` where unknown."""
    found = changed_fields(spec)
    return "?" if found is None else fields_text(found)


def fields_text(changes: Mapping[str, Any]) -> str:
    """Fields and their values."""
    return ", ".join(f"{field}={value_text(value)}" for field, value in changes.items())


def value_text(value: Any) -> str:
    """A value as YAML writes it, on one line and cut where it is long."""
    text = _yaml(value)
    if len(text) <= MAX_VALUE_LENGTH:
        return text
    n = f" ({len(value)} values)" if isinstance(value, tuple | list) else ""
    return f"{text[: MAX_VALUE_LENGTH - 8].rstrip(',')}…{n}"


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
