"""The commands and their options; field docstrings are the help texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from mnemoscope.cli.analysis_options import (
    Ablate,
    Circuits,
    Discover,
    Edges,
    Heads,
    Interchange,
    Neurons,
    Patch,
    Probe,
    Shapley,
    Truncate,
)
from mnemoscope.cli.run_options import Evaluate, Follow, Predict, Report, View


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train presets over seeds; interrupted runs continue, finished ones are left alone."""

    preset: tuple[str, ...] = ("v3",)
    """Configurations; `mnemoscope list presets` shows them."""
    recipe: str = "quick"
    """Training recipe: quick or published."""
    seeds: str = "0"
    """Seeds, such as `3`, `0-15` or `0-3,7`."""
    jobs: int = 1
    """Worker processes, of one thread each; 0: one per core."""
    together: bool = False
    """Train all seeds of a configuration as one program (worth it on a GPU)."""
    out: Path = Path("runs")
    """Runs go to OUT/<preset>-<recipe>/seed-<seed>."""
    device: str = "cpu"
    """Where to train, such as cpu, cuda or cuda:1."""
    corpus: Path | None = None
    """Text file in place of tiny Shakespeare, for tasks that are made of a text's bigrams."""
    set: tuple[str, ...] = ()
    """Changes such as `task.repeat_ratio=0.5 model.normalization=none recipe.n_steps=500`."""
    config: Path | None = None
    """YAML file: a section a command, a key an option; what is typed wins."""


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Train and report a published system and put its claims on trial; a second call continues or only reports."""

    system: Positional[str] = "tiny-recall"
    """Which system; `mnemoscope list systems` shows them."""
    full: bool = False
    """Train the models of the published recipe anew, at the paper's sizes, and judge those (hours on two cores)."""
    corpus: Path | None = None
    """Text file in place of tiny Shakespeare, for tasks that are made of a text's bigrams."""
    seeds: str | None = None
    """Seeds in place of the plan's, such as `0-1`."""
    jobs: int = 2
    """Worker processes, of one thread each; 0: one per core."""
    out: Path | None = None
    """Directory for runs, arrays, tables, report.html and verdicts; none: reports/<system>."""
    config: Path | None = None
    """YAML file: a section a command, a key an option; what is typed wins."""


@dataclass(frozen=True, kw_only=True)
class List:
    """What exists: tasks, presets, systems, the runs that came with the package, or those below a directory."""

    what: Positional[Annotated[str, "tasks, presets, systems, zoo or a directory"]] = "presets"
    """tasks, presets, systems, zoo, a word such as `zoo:v3-published`, or a directory with runs."""
    config: Path | None = None
    """YAML file: a section a command, a key an option; what is typed wins."""


@dataclass(frozen=True, kw_only=True)
class Zoo:
    """For maintainers: pack trained runs of a system's full plan into the archives that come with the package."""

    system: Positional[str] = "tiny-recall"
    """Whose plan."""
    runs: Path = Path("reports/zoo/runs")
    """Directory with the finished runs, as `mnemoscope reproduce --full --out reports/zoo` leaves it."""
    only: tuple[str, ...] = ()
    """Configurations to pack, such as v3-published; none: all of the plan."""
    out: Path | None = None
    """Directory for the archives; none: that of the package."""
    config: Path | None = None
    """YAML file: a section a command, a key an option; what is typed wins."""


@dataclass(frozen=True, kw_only=True)
class ClaimsList:
    """The claims that can be put on trial, with their rivals."""

    what: Positional[tuple[str, ...]] = ()
    """Systems or claims, such as tiny-recall or T14; none: all."""
    config: Path | None = None
    """YAML file: a section a command, a key an option; what is typed wins."""


@dataclass(frozen=True, kw_only=True)
class ClaimsShow:
    """All that is fixed about claims before they are tried: criteria, gate, models, controls, rivals, factors."""

    what: Positional[tuple[str, ...]]
    """Claims, such as T14, or systems."""
    config: Path | None = None
    """YAML file: a section a command, a key an option; what is typed wins."""


@dataclass(frozen=True, kw_only=True)
class ClaimsRun:
    """Put claims on trial over trained models: a verdict each, with controls, rivals and sensitivity; resumes."""

    what: Positional[tuple[str, ...]] = ("tiny-recall",)
    """Systems or claims, such as tiny-recall or T14."""
    runs: tuple[Path, ...] = ()
    """Run directories, directories that hold some, or words such as `zoo:v3-published`."""
    zoo: bool = False
    """Take the trained runs that come with the package too."""
    recipe: str | None = None
    """Ask of models of this recipe, quick or published, in place of the claims' own."""
    sensitivity: bool = True
    """Ask again with one factor changed at a time."""
    emergence: bool = True
    """Follow the effects of the first seed that has checkpoints over its training."""
    jobs: int = 0
    """Worker processes, of one thread each; 0: one per core."""
    out: Path = Path("verdicts")
    """Directory for verdicts.json, report.html, the evidence, and what was measured so far."""
    config: Path | None = None
    """YAML file: a section a command, a key an option; what is typed wins."""


@dataclass(frozen=True, kw_only=True)
class ClaimsDiff:
    """What differs between two trials: verdicts, shares and effects, with those of rivals and sensitivity tables."""

    old: Positional[Path]
    """verdicts.json, or the directory that holds it."""
    new: Positional[Path]
    """verdicts.json, or the directory that holds it."""
    config: Path | None = None
    """YAML file: a section a command, a key an option; what is typed wins."""


COMMANDS: dict[str, type] = {
    "train": Train,
    "evaluate": Evaluate,
    "predict": Predict,
    "patch": Patch,
    "edges": Edges,
    "discover": Discover,
    "ablate": Ablate,
    "shapley": Shapley,
    "probe": Probe,
    "interchange": Interchange,
    "truncate": Truncate,
    "circuits": Circuits,
    "neurons": Neurons,
    "heads": Heads,
    "view": View,
    "report": Report,
    "follow": Follow,
    "claims list": ClaimsList,
    "claims show": ClaimsShow,
    "claims run": ClaimsRun,
    "claims diff": ClaimsDiff,
    "reproduce": Reproduce,
    "list": List,
    "zoo": Zoo,
}


def split_command(words: Sequence[str]) -> tuple[str, list[str]] | None:
    """The command that a line begins with, which may be two words, and the words after it."""
    for command in COMMANDS:
        n = len(command.split())
        if list(words[:n]) == command.split():
            return command, list(words[n:])
    return None


def overview() -> str:
    """The text of `mnemoscope --help`."""
    lines = [f"  {name:<12} {(options.__doc__ or '').strip()}" for name, options in COMMANDS.items()]
    return "\n".join(
        [
            "usage: mnemoscope COMMAND ... (mnemoscope COMMAND --help for its options)",
            "",
            "Train small transformers on memory tasks, take them apart, put claims about them on trial.",
            "",
            "commands:",
            *lines,
        ]
    )
