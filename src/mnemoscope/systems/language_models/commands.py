"""`mnemoscope prompts stability`: circuits of a language model that are found again under other choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import mnemoscope as ms
from mnemoscope.cli import COMMANDS, Command, ResultOptions, present
from mnemoscope.core import in_range, one_of

if TYPE_CHECKING:
    import xarray as xr

Search = Literal["eap-ig", "eap", "effect", "greedy"]
SEARCHES: dict[Search, str] = {
    "eap-ig": "top n by EAP-IG",
    "eap": "top n by EAP",
    "effect": "top n by effect",
    "greedy": "greedy",
}
"""Names of `ms.analyses.CIRCUIT_SEARCHES` by the words of the option."""


@dataclass(frozen=True, kw_only=True)
class PromptsStability(ResultOptions):
    """Circuits that stay in a language model: found again with other prompts, wordings, metrics and searches.

    The first of --metrics, --targets and --searches is the usual choice. One choice is changed at a time, at last all.
    `discover --stability` does the same with trained runs.
    """

    model: str = "smollm2"
    """Language model: smollm2 (packaged), a directory, a GGUF file, a name on the hub."""
    family: str = "names"
    """Prompts: names (stories, and who is named again), facts, conflicts (whether the text says what follows)."""
    wordings: bool = False
    """The same names and answers in other stories too; names only."""
    n: int = 4
    """Pairs of prompts of each draw."""
    n_draws: int = 3
    """Draws of prompts."""
    metrics: tuple[str, ...] = ("logit_diff",)
    """Some of logit_diff, log_prob, prob, kl."""
    targets: tuple[float, ...] = (0.9,)
    """Faithfulness that circuits are to reach, above 0 and at most 1."""
    searches: tuple[Search, ...] = ("eap-ig", "eap")
    """Rankings of edges by gradients; effect and greedy run a circuit for every edge, which small models allow."""
    n_random: int = 50
    """Random circuits of the same size to compare with."""
    max_seconds: float = 1800
    """Most seconds, as estimated; a longer search is refused, on models with more than 8,000 edges."""
    seed: int = 0
    """Draws prompts, random circuits, and the combinations of all choices at once."""
    device: str = "cpu"
    """Device of the model."""
    dtype: str = "float32"
    """Precision of its weights."""
    out: Path = Path("results/prompts-stability")
    """Arrays, tables and a page with figures go here in place of earlier ones."""


def run(options: PromptsStability) -> None:
    """Find the circuits, print and write."""
    from mnemoscope.records import display_stability
    from mnemoscope.systems.language_models.families import FAMILIES

    metrics = _check(options)
    model = ms.models.named_language_model(options.model, device=options.device, dtype=options.dtype)
    with _working(f"{options.model}: circuits of {len(ms.interventions.model_edges(model)):,} edges"):
        found = measure(model, options, metrics)
    wordings = options.wordings if FAMILIES[options.family].wordings else None
    searches = [SEARCHES[name] for name in options.searches]
    shown = display_stability({options.family: found}, searches=searches, wordings=wordings)
    present("stability", options.model, {"stability": found}, shown, options.out, options=options)


def measure(model: ms.HookedModel, options: PromptsStability, metrics: Sequence[Any]) -> xr.Dataset:
    """The circuits of a model, as `ms.analyses.circuit_stability` gives them."""
    from mnemoscope.core import stream_seed
    from mnemoscope.systems.language_models.families import FAMILIES

    family = FAMILIES[options.family]
    seeds = [stream_seed(options.seed, "draws", draw) for draw in range(options.n_draws)]
    wordings = family.wordings if options.wordings else {}
    return ms.analyses.circuit_stability(
        model,
        [family.draw(model, options.n, seed) for seed in seeds],
        wordings={name: [draw(model, options.n, seed) for seed in seeds] for name, draw in wordings.items()},
        metrics=metrics,
        replacements=["patch"],  # gradients say nothing of means and zeros
        targets=options.targets,
        searches={SEARCHES[name]: ms.analyses.CIRCUIT_SEARCHES[SEARCHES[name]] for name in options.searches},
        n_random=options.n_random,
        max_seconds=options.max_seconds,
        seed=options.seed,
    )


def _check(options: PromptsStability) -> list[Any]:
    """Refuse options before the model is loaded; gives the metrics."""
    from mnemoscope.core.metrics import METRICS
    from mnemoscope.systems.language_models.families import FAMILIES

    one_of("--family", options.family, FAMILIES)
    if options.wordings and not FAMILIES[options.family].wordings:
        having = ", ".join(name for name, family in FAMILIES.items() if family.wordings)
        raise ms.InputError(
            f"--wordings: the family {options.family} has no other wording of its prompts; leave it out, or take "
            f"--family {having}"
        )
    in_range("--n", options.n, 2, float("inf"))
    in_range("--n-draws", options.n_draws, 2, float("inf"))
    in_range("--n-random", options.n_random, 1, float("inf"))
    for target in options.targets:
        in_range("--targets", target, 0.01, 1)
    known = {metric.name: metric for metric in METRICS}
    for name in options.metrics:
        one_of("--metrics", name, known)
    return [known[name] for name in options.metrics]


def _working(text: str) -> Any:
    """A line on the terminal while circuits are found."""
    from rich.console import Console

    return Console(stderr=True).status(text)


COMMANDS.add(
    "prompts stability",
    Command(options=PromptsStability, run=run, section="study a model of your own or a language model"),
)
