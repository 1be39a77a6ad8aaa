"""Options from words: a configuration file gives defaults, the command line takes precedence, unknown keys are refused.

Guests of `--import` come first, since they may bring commands and anything else that the other words name.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import tyro

from mnemoscope.cli.command import commands
from mnemoscope.cli.options import FigureOptions
from mnemoscope.cli.refusals import check_figures, check_out, check_registered_names, refuse_in_one_line
from mnemoscope.core import guests
from mnemoscope.core.errors import InputError, one_of

MOST_SEEDS = 100_000
IMPORT = "import"
"""Words `--import FILE`, and the key of a configuration file that names guests for all commands."""


def import_guests(words: Sequence[str]) -> list[str]:
    """Import the guests that `--import` and the configuration file name, and return the other words."""
    others, named = [], []
    left = iter(words)
    for word in left:
        if word.startswith(f"--{IMPORT}="):
            named.append(word.partition("=")[2])
        elif word != f"--{IMPORT}":
            others.append(word)
        elif (following := next(left, None)) is None:
            raise InputError(f"--{IMPORT} must name a Python file or a module; got nothing")
        else:
            named.append(following)
    file = _config_file(words)
    listed = _parse_yaml(file).get(IMPORT, []) if file is not None else []
    if not isinstance(listed, list) or not all(isinstance(source, str) for source in listed):
        raise InputError(f"{IMPORT} in {file} must be a list of Python files and modules; got {listed!r}")
    for source in (*listed, *named):
        guests.invite(source)
    return others


def execute(command: str, words: Sequence[str], *, called: str | None = None) -> None:
    """Parse the options of `command` and run it; raises InputError where an option or a place in it is refused.

    An earlier name that it is `called` by may give options other defaults.
    """
    options = parse(command, words, called=called)
    if (out := getattr(options, "out", None)) is not None:
        usual: Any = next(field.default for field in dataclasses.fields(options) if field.name == "out")
        is_file = commands()[command].out_is_file
        check_out(out, is_file=is_file, page=is_file and (usual is None or usual.suffix == ".html"))
    if isinstance(options, FigureOptions):
        check_figures(options)
    with _workers(options):
        commands()[command].run(options)


@contextmanager
def _workers(options: Any) -> Iterator[None]:
    """Give all work within the worker processes or the Dask cluster of the options."""
    if (jobs := getattr(options, "jobs", None)) is None:
        check_registered_names(options)
        yield
        return
    from mnemoscope.run.executor import n_processes, preload_server

    processes = n_processes(jobs)
    check_registered_names(options)
    if (scheduler := getattr(options, "scheduler", None)) is None:
        if processes > 1:
            preload_server()
        yield
        return
    from mnemoscope.cli.output import console
    from mnemoscope.run.cluster import on_scheduler

    with on_scheduler(scheduler, jobs=jobs, announce=partial(console.print, highlight=False)):
        yield


def parse(command: str, words: Sequence[str], *, called: str | None = None) -> Any:
    """The options of `command`, with the defaults of the configuration file that the words name."""
    cls = commands()[command].options
    given = commands()[command].earlier.get(called or command, {})
    file = _config_file(words)
    arguments = {"prog": f"mnemoscope {command}", "args": list(words), "description": (cls.__doc__ or "").strip()}
    if file is None and not given:
        with refuse_in_one_line(command, cls):
            return tyro.cli(cls, **arguments)
    given = given if file is None else {**given, **read_config(file).get(command, {})}
    defaults = {
        field.name: given.get(field.name, tyro.MISSING if field.default is dataclasses.MISSING else field.default)
        for field in dataclasses.fields(cls)
    }
    with refuse_in_one_line(command, cls):
        return tyro.cli(cls, **arguments, default=cls(**defaults))


def read_config(file: Path) -> dict[str, dict[str, Any]]:
    """Sections and keys of a configuration file; refuses unknown ones and values that do not fit the options' types."""
    from pydantic import ConfigDict, TypeAdapter, ValidationError

    found = commands()
    names = {earlier: name for name, command in found.items() for earlier in (name, *command.earlier)}
    as_typed = ConfigDict(coerce_numbers_to_str=True)  # `seeds: 0` is as good as `--seeds 0`
    result = {}
    for section, values in _parse_yaml(file).items():
        if section == IMPORT:
            continue
        one_of(f"a section of {file}", section, names)
        command = names[section]
        if not isinstance(values, dict):
            raise InputError(f"section {section} of {file} must hold options as keys; got {values!r}")
        hints = get_type_hints(found[command].options)
        result[command] = {}
        for key, value in values.items():
            one_of(f"a key of {section} in {file}", key, hints)
            try:
                result[command][key] = TypeAdapter(hints[key], config=as_typed).validate_python(value)
            except ValidationError as error:
                message = error.errors()[0]["msg"]
                raise InputError(f"{section}.{key} in {file}: {message}; got {value!r}") from None
    return result


def _parse_yaml(file: Path) -> Mapping[Any, Any]:
    return read_keys(file, f"--config {file}", f"sections named after commands: {', '.join(commands())}")


def read_keys(file: Path, called: str, expected: str) -> Mapping[Any, Any]:
    """The keys and values of a YAML file; messages of refusal say what it is `called` and should hold (`expected`)."""
    from mnemoscope.models.files import read_yaml

    content = read_yaml(file, called) or {}
    if not isinstance(content, dict):
        raise InputError(f"{called} must hold {expected}")
    return content


def _config_file(words: Sequence[str]) -> Path | None:
    for word, following in zip(words, [*words, ""][1:], strict=True):
        called, equals, file = word.partition("=")
        if called == "--config":
            file = file if equals else following
            if not file or file.startswith("--"):
                raise InputError("--config must name a YAML file; got nothing")
            return Path(file)
    return None


def parse_seeds(text: str) -> list[int]:
    """The seeds of `0-3,7`; raises InputError where the text says something else, or names too many."""
    seeds: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise InputError(f"--seeds must look like 3, 0-15 or 0-3,7; got {text!r}")
        seeds += range(int(low), min(int(high or low), int(low) + MOST_SEEDS) + 1)
    if len(seeds) > MOST_SEEDS:
        raise InputError(f"--seeds may name {MOST_SEEDS} seeds at most; got {text!r}")
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError(f"--seeds must name every seed once; got {text!r}")
    return seeds


def parse_changes(words: Sequence[str]) -> dict[str, Any]:
    """The changes of `recipe.n_steps=500 ...`; values are read as YAML."""
    import yaml

    changes = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or "." not in key:
            raise InputError(f"--set takes words such as recipe.n_steps=500; got {word!r}")
        try:
            changes[key] = yaml.safe_load(value)
        except (yaml.YAMLError, ValueError, RecursionError):
            raise InputError(f"--set {key} takes a value as YAML writes it; got {value!r}") from None
    return changes


def default_system() -> tuple[str, str]:
    """The first installed system that has a default preset, and this preset, for words that name none."""
    from mnemoscope.core.presets import SYSTEMS

    found = {name: SYSTEMS.get(name).default for name in SYSTEMS.names()}
    for name, default in found.items():
        if default is not None:
            return name, default
    raise InputError(f"name a preset or a system: no installed system has a default; there are {', '.join(found)}")
