"""The report on runs of in-context Markov chains: whose predictions those of a model are like, and when."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import xarray as xr

from mnemoscope import REPORTS, Batch, HookedModel, Run
from mnemoscope.report import Page, Results, Table, mean_with_range, trajectory_curves
from mnemoscope.report import plain_report as plain
from mnemoscope.systems.markov.analyses.attention import attention_shares
from mnemoscope.systems.markov.analyses.course import phases, trajectory
from mnemoscope.systems.markov.analyses.distances import chains_of, divergences, linear_readout, own_n_gram, prompts
from mnemoscope.systems.markov.predictors import contexts
from mnemoscope.systems.markov.tasks import MarkovChains

PANELS = {
    "divergence from predictors, nats": ("kl_uniform", "kl_unigram", "kl_bigram", "kl_trigram"),
    "share of the gap that is closed": ("closed", "closed_previous", "closed_successors"),
    "attention of both layers": ("previous", "successors"),
}
"""The panels of the figure along training."""


def examine(run: Run) -> dict[str, xr.Dataset]:
    """Results as for any task of tokens; divergences, the best linear readout and attention; the trajectory, if any."""
    task, model = chains_of(run.spec.task), run.hooked()
    batch = prompts(task, run.spec.seed)
    distances = divergences(model, task, batch)
    read = linear_readout(model, task, batch)
    found = {
        **plain.examine(run),
        "distances": distances.assign(linear=read.kl, gain=read.gain),
        "attention": attention_shares(model, batch),
    }
    tracked = run.trajectory()
    return found if tracked is None else {**found, "trajectory": tracked}


def distance_table(results: Mapping[str, Results]) -> Table:
    """Divergences from the predictors of all configurations, and the share of the gap that is closed."""
    every = dict.fromkeys(str(name) for result in results.values() for name in result["distances"].predictor.values)
    rows = [
        [name.replace("_", " "), *(_cell(result["distances"], name) for result in results.values())] for name in every
    ]
    for name, words in (("linear", "best linear readout"), ("closed", "closed share of the gap")):
        rows.append([words, *(mean_with_range(result["distances"][name], ".3f") for result in results.values())])
    return Table(
        name="predictors",
        title="Divergence KL(predictor ‖ model), nats: mean [range] over seeds",
        header=["predictor", *results],
        rows=rows,
    )


def _cell(found: xr.Dataset, name: str) -> str:
    if name not in found.predictor.values:
        return "–"
    return mean_with_range(found.kl.sel(predictor=name), ".3f")


def attention_table(results: Mapping[str, Results]) -> Table:
    """Attention of both layers of all configurations, of the best head each."""
    words = {
        "previous": "layer 1: one back",
        "successors": "layer 2: successors",
        "chance": "successors, even attention",
    }
    rows = []
    for name, said in words.items():
        cells = [result["attention"][name] for result in results.values()]
        best = [cell.max("head") if "head" in cell.dims else cell for cell in cells]
        rows.append([said, *(mean_with_range(cell, ".2f") for cell in best)])
    title = "Attention, mean [range] over seeds"
    return Table(name="attention", title=title, header=["share of attention", *results], rows=rows)


def phase_table(results: Mapping[str, Results]) -> Table:
    """The phases of every seed that was tracked."""
    rows = []
    for label, result in results.items():
        tracked = result.get("trajectory")
        if tracked is None or "kl_bigram" not in tracked:
            continue
        names = ("uniform", "unigram", "bigram", *(["trigram"] if "kl_trigram" in tracked else []))
        for seed in tracked.seed.values.tolist():
            found = phases(tracked.sel(seed=seed), names)
            words = ", ".join(f"{name} {first} to {last}" for name, first, last in found)
            rows.append([label, str(seed), words])
    header = ["configuration", "seed", "nearest predictor, from which step to which"]
    return Table(name="phases", title="Phases of training", header=header, rows=rows, n_text=3)


def tables(results: Mapping[str, Results]) -> list[Table]:
    """The tables of any task of tokens, divergences, attention, and phases where runs were tracked."""
    own = [distance_table(results), attention_table(results)]
    phased = phase_table(results)
    return [*plain.tables(results), *own, *([phased] if phased.rows else [])]


def page(page: Page, results: Mapping[str, Results]) -> None:
    """The sections of the page."""
    plain.learned_section(page, results)
    page.section("Whose predictions these are")
    page.text(
        "Divergences are from the exact predictors. The gap is that between the predictor of the task and the nearest "
        "simpler one. A linear readout is softmax(gain · frequency), which is what attention alone can write."
    )
    page.show(distance_table(results))
    page.show(attention_table(results))
    course_section(page, results)
    for section in (plain.ablation_section, plain.training_section, plain.view_section):
        section(page, results)


def course_section(page: Page, results: Mapping[str, Results]) -> None:
    """The course of training, where checkpoints were measured."""
    page.section("The course of training")
    phased = phase_table(results)
    if not phased.rows:
        page.text("Not tracked yet.")
        return
    page.text("At every checkpoint the nearest predictor; with ideal patterns, attention of a layer is set by hand.")
    for label, result in results.items():
        if "trajectory" in result:
            tracked = result["trajectory"]
            shown = {title: [name for name in names if name in tracked] for title, names in PANELS.items()}
            page.heading(label)
            page.figure(trajectory_curves(tracked, {k: v for k, v in shown.items() if v}), "One line per seed.")
    page.show(phased)


def known_of(task: MarkovChains, batch: Batch) -> Sequence[str]:
    """Counts of what followed the same context before, at every position."""
    tokens = batch.inputs[0].tolist()
    here = contexts(batch.inputs.long(), task.order, task.n_symbols)[0].tolist()
    words = []
    for pos, context in enumerate(here):
        followed = [tokens[i + 1] for i in range(pos) if here[i] == context and context >= 0]
        counts = {task.symbol(token): followed.count(token) for token in sorted(set(followed))}
        words.append(", ".join(f"{symbol} {n}" for symbol, n in counts.items()) if counts else "")
    return [f"followed by {each}" if each else "" for each in words]


def predict(model: HookedModel, task: MarkovChains, batch: Batch) -> xr.Dataset:
    """The likeliest symbols beside those of the n-gram, and what followed each context before."""
    return plain.predict(model, task, batch, reference=own_n_gram(task), knows=known_of)


def example_words(task: MarkovChains, batch: Batch) -> tuple[str, str]:
    """The first twenty symbols, and the one after the last."""
    symbols = "".join(task.symbol(token) for token in batch.inputs[0].tolist())
    return f"{symbols[:20]}…", task.symbol(int(batch.targets[0, -1]))


REPORTS.add(
    MarkovChains.name,
    replace(
        plain.PLAIN,
        title="In-context Markov chains: statistical induction heads",
        about="Every sequence follows a Markov chain of its own. The next symbol is read from what followed the same "
        "context before.",
        example_words=example_words,
        analyse=examine,
        page=page,
        tables=tables,
        predict=predict,
        trajectory=trajectory,
    ),
)
