"""`mnemoscope dictionary train`, `dictionary measure` and `dictionary agree`: sparse features of trained runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import lazy_loader

import mnemoscope as ms
from mnemoscope.cli.analysis import analyse_runs, publish
from mnemoscope.cli.command import COMMANDS, SECTIONS, Command
from mnemoscope.cli.options import AnalysisOutputOptions, RunOptions
from mnemoscope.cli.parse import parse_seeds
from mnemoscope.cli.refusals import check_out
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.records.record import Display

if TYPE_CHECKING:
    import xarray as xr
else:
    xr = lazy_loader.load("xarray")

RECIPE = "recipe.json"
LIMITS = (
    "The reconstruction takes the place of the activation without its error. The share of the loss recovered counts "
    "from zeros, or from the mean over sequences, in that place.",
    "Features are matched one to one by the correlation of their activations on the same inputs. Shuffled: the same "
    "with the sequences of one side in random order, the mean of 20 draws.",
    "A feature that is found again need not be a unit of the model, and one that is not may be.",
)
ROWS = {
    "variance explained": ("variance_explained", {}, ".3f"),
    "loss recovered, from zeros": ("recovered", {"baseline": "zero"}, ".3f"),
    "loss recovered, from the mean": ("recovered", {"baseline": "mean"}, ".3f"),
    "loss": ("loss", {}, ".3f"),
    "active features (L0)": ("l0", {}, ".1f"),
    "dead features, share": ("dead", {}, ".3f"),
}
AGREEMENT = {
    "share with a partner": ("share", ".3f"),
    "the same, shuffled": ("shuffled_share", ".3f"),
    "correlation of partners": ("similarity", ".3f"),
    "the same, shuffled sequences": ("shuffled_similarity", ".3f"),
    "dead features, share": ("dead", ".3f"),
}


@dataclass(frozen=True, kw_only=True)
class DictionaryTrain(RunOptions):
    """Train small dictionaries of sparse features: autoencoders or transcoders, several seeds for each run.

    Files that are there already stay as they are, so that the same call goes on where it was interrupted.
    """

    kind: Literal["sae", "transcoder", "skip-transcoder"] = "transcoder"
    """sae: reconstructs what it reads; transcoder: the output of an MLP from its input; skip-transcoder: with a linear
    map of the input beside."""
    read: Literal["mlp", "resid_pre", "attn_out", "resid_mid", "mlp_out", "resid_post"] = "mlp"
    """The activation; mlp for transcoders, and for sae the output of the MLP."""
    layer: int = 0
    """Number of the block, from 0."""
    width: float = 4
    """Number of features: this many times the neurons of the MLP for transcoders, the width of the stream for sae."""
    activation: Literal["topk", "relu"] = "topk"
    """topk: the K largest features are active; relu: a penalty makes features sparse."""
    k: int = 8
    """Features that may be active at once, for topk."""
    l1: float = 0.03
    """Weight of the penalty, for relu."""
    n_steps: int = 3000
    """Updates."""
    seeds: str = "0"
    """Seeds of the dictionaries of each run, such as 0-3."""
    out: Path = Path("dictionaries")
    """Files go to OUT/<configuration>/seed-<seed of the run>/dictionary-<seed>.safetensors."""


@dataclass(frozen=True)
class Piece:
    """One dictionary to train."""

    run: ms.Run
    recipe: ms.DictionaryRecipe
    seed: int
    file: Path


def train(options: DictionaryTrain) -> None:
    """Train what is missing, and print how many that were."""
    from mnemoscope.cli.output import console
    from mnemoscope.core.dictionary import activation_hook

    check_out(options.out, is_file=False)
    seeds, runs = parse_seeds(options.seeds), ms.find_runs(options.runs)
    recipe = ms.DictionaryRecipe(**{name: getattr(options, name) for name in _RECIPE_OPTIONS})
    for run in runs:
        activation_hook(recipe.writes, recipe.layer, run.hooked().cfg)
    _keep_recipe(options.out, recipe)
    pieces = [
        Piece(run, recipe, seed, place / f"dictionary-{seed:02}.safetensors")
        for label, members in ms.models.by_label(runs).items()
        for run, place in ((run, ms.models.run_place(options.out, label, run.spec.seed)) for run in members)
        for seed in seeds
    ]
    missing = [piece for piece in pieces if not piece.file.exists()]
    analyse_runs(missing, train_piece, options.jobs, "dictionaries")  # pyright: ignore[reportArgumentType]
    there = len(pieces) - len(missing)
    console.print(f"dictionaries in {options.out}: {len(missing)} trained, {there} there already", highlight=False)


_RECIPE_OPTIONS = ("kind", "read", "layer", "width", "activation", "k", "l1", "n_steps")


def train_piece(piece: Piece) -> None:
    """Train a dictionary and write its file in one move."""
    found = ms.train_dictionary(piece.run, recipe=piece.recipe, seed=piece.seed)
    ms.save_dictionary(found, piece.file)


def _keep_recipe(out: Path, recipe: ms.DictionaryRecipe) -> None:
    """Write the recipe of a directory; raises InputError where it holds dictionaries of another one."""
    given, file = asdict(recipe), out / RECIPE
    if file.exists():
        kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if apart := [f"{name}={kept.get(name)}" for name in given if kept.get(name) != given[name]]:
            raise InputError(f"{out} holds dictionaries of another recipe ({', '.join(apart)}); name another --out")
        return
    ms.models.write_atomically(file, json.dumps(given, indent=1).encode())


def files_of(directory: Path, run: ms.Run) -> list[Path]:
    """The files of the dictionaries of a run; raises InputError where there are none."""
    place = ms.models.run_place(directory, run.label, run.spec.seed)
    files = sorted(place.glob("dictionary-*.safetensors"))
    if not files:
        raise InputError(f"{place} holds no dictionary; `mnemoscope dictionary train` trains some")
    return files


def load_all(directory: Path, run: ms.Run) -> dict[int, ms.Dictionary]:
    """The dictionaries of a run by their seed; errors as for `files_of`."""
    return {int(file.stem.rpartition("-")[2]): ms.load_dictionary(file) for file in files_of(directory, run)}


@dataclass(frozen=True, kw_only=True)
class MeasuredDictionaries(AnalysisOutputOptions):
    """Options of commands that look at dictionaries of runs."""

    dictionaries: Path = Path("dictionaries")
    """Directory that `dictionary train` wrote."""
    split: Literal["train", "test"] = "test"
    """Sequences of the training set, or unseen ones."""
    n: int = 1000
    """Sequences."""


@dataclass(frozen=True, kw_only=True)
class DictionaryMeasure(MeasuredDictionaries):
    """Quality of dictionaries: variance explained, loss recovered, active and dead features, with intervals."""


@dataclass(frozen=True, kw_only=True)
class DictionaryAgree(MeasuredDictionaries):
    """Agreement of dictionaries: features matched by activations on the same inputs, beside shuffled sequences."""

    between: Literal["dictionaries", "models"] = "dictionaries"
    """dictionaries: all pairs of seeds of one model; models: all pairs of models, with the first dictionary of each."""
    threshold: float = 0.7
    """Correlation that a partner has at least."""


def _sequences(run: ms.Run, options: MeasuredDictionaries) -> ms.Batch:
    draws = ms.generator(run.spec.seed, "dictionaries", options.split)
    return run.spec.task.sample(options.n, split=options.split, generator=draws)


def measure_run(run: ms.Run, options: DictionaryMeasure) -> dict[str, xr.Dataset]:
    """The quality of every dictionary of a run, along `dictionary_seed`."""
    found = load_all(options.dictionaries, run)
    named = [replace(each, name=str(seed)) for seed, each in found.items()]
    quality = ms.analyses.dictionary_quality(run, named, _sequences(run, options))
    return {"quality": quality.rename(dictionary="dictionary_seed").assign_coords(dictionary_seed=list(found))}


def measure(options: DictionaryMeasure) -> None:
    """Print and write the quality of dictionaries, by configuration."""
    for label, runs in _configurations(options).items():
        each = analyse_runs(runs, partial(measure_run, options=options), options.jobs, label)
        results = ms.analyses.over_seeds(runs, each)
        rows = [
            [name, *_over_both(results["quality"][variable].sel(at), form)]
            for name, (variable, at, form) in ROWS.items()
        ]
        header = ("measure", "over seeds of the model", "over seeds of the dictionary")
        table = ms.report.Table(name="quality", title="quality of dictionaries", header=header, rows=rows)
        shown = Display(tables=[table], figures=[], notes=LIMITS[:1] + LIMITS[2:])
        publish("dictionary-measure", label, runs, results, shown, options)


def _configurations(options: MeasuredDictionaries) -> dict[str, list[ms.Run]]:
    check_out(options.out, is_file=False)
    in_range("--n", options.n, 2, float("inf"))
    runs = ms.find_runs(options.runs)
    for run in runs:
        files_of(options.dictionaries, run)
    return ms.models.by_label(runs)


def _over_both(values: xr.DataArray, form: str) -> list[str]:
    """Mean with its 95 % interval over seeds of the model, and with the range over seeds of the dictionary."""
    return [_interval(values.mean("dictionary_seed"), form), ms.report.mean_with_range(values.mean("seed"), form)]


def _interval(values: xr.DataArray, form: str) -> str:
    """Mean with Student's interval; the mean alone where there is one replicate."""
    (dim,) = map(str, values.dims)
    if values.sizes[dim] < 2:
        return ms.report.mean_with_range(values, form)
    mean, low, high = ms.core.mean_interval(values, dim).values.tolist()
    return ms.report.interval(mean, low, high, form, n=values.sizes[dim], each=values)


def _agreement(one: ms.Run, other: ms.Run, pair: Sequence[ms.Dictionary], options: DictionaryAgree) -> xr.Dataset:
    sides = [(run, dictionary) for run, dictionary in zip((one, other), pair, strict=True)]
    batch = _sequences(one, options)
    found = ms.analyses.dictionary_agreement(sides[0], sides[1], batch, threshold=options.threshold)
    return found.drop_dims("feature").mean("draw", keep_attrs=True).mean("side", keep_attrs=True)


def agree_run(run: ms.Run, options: DictionaryAgree) -> dict[str, xr.Dataset]:
    """The agreement of all pairs of dictionaries of a run, along `pair`."""
    found = load_all(options.dictionaries, run)
    if len(found) < 2:
        raise InputError(f"{run.path} has one dictionary; train others with --seeds, or compare --between models")
    pairs = list(combinations(found, 2))
    each = [_agreement(run, run, [found[a], found[b]], options) for a, b in pairs]
    names = xr.DataArray([f"{a} and {b}" for a, b in pairs], dims="pair", name="pair")
    return {"agreement": xr.concat(each, names)}


def agree_models(pair: tuple[ms.Run, ms.Run], options: DictionaryAgree) -> xr.Dataset:
    """The agreement of the first dictionaries of two runs, on sequences of the first."""
    found = [ms.load_dictionary(files_of(options.dictionaries, run)[0]) for run in pair]
    return _agreement(*pair, found, options)


def agree(options: DictionaryAgree) -> None:
    """Print and write the agreement of dictionaries, by configuration."""
    for label, runs in _configurations(options).items():
        if options.between == "models":
            if len(runs) < 2:
                raise InputError(f"{label} has one run here; name several, or leave out --between")
            pairs = list(combinations(runs, 2))
            measure: Any = partial(agree_models, options=options)
            each: list[xr.Dataset] = analyse_runs(pairs, measure, options.jobs, label)  # pyright: ignore
            names = xr.DataArray([f"{a.spec.seed} and {b.spec.seed}" for a, b in pairs], dims="pair", name="pair")
            results: dict[str, xr.Dataset] = {"agreement": xr.concat(each, names)}
        else:
            found = analyse_runs(runs, partial(agree_run, options=options), options.jobs, label)
            results = ms.analyses.over_seeds(runs, found)
        agreement = results["agreement"]
        by_seed = agreement.mean("pair") if "seed" in agreement.dims else None
        rows = []
        for name, (variable, form) in AGREEMENT.items():
            pairs_of = agreement[variable] if by_seed is None else agreement[variable].mean("seed")
            over_models = [] if by_seed is None else [_interval(by_seed[variable], form)]
            rows.append([name, *over_models, ms.report.mean_with_range(pairs_of, form)])
        header = ("measure", *([] if by_seed is None else ["over seeds of the model"]), "over pairs")
        title = f"agreement between {options.between}, threshold {options.threshold:g}"
        table = ms.report.Table(name="agreement", title=title, header=header, rows=rows)
        shown = Display(tables=[table], figures=[], notes=LIMITS[1:])
        publish(f"dictionary-agree-{options.between}", label, runs, results, shown, options)


COMMANDS.add("dictionary train", Command(options=DictionaryTrain, run=train, section=SECTIONS[0]))
COMMANDS.add("dictionary measure", Command(options=DictionaryMeasure, run=measure, section=SECTIONS[0]))
COMMANDS.add("dictionary agree", Command(options=DictionaryAgree, run=agree, section=SECTIONS[0]))
