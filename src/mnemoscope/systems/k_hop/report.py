"""The report on runs of k-fold composition: errors by number of hops, when they fall, and intermediate results."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
import xarray as xr

from mnemoscope import REPORTS, Batch, HookedModel, InputError, Run, generator
from mnemoscope.analyses import named_patterns, predicted_vectors, skill_trajectory
from mnemoscope.core import in_range, one_of
from mnemoscope.report import Page, Results, Table, mean_with_range, vector_report
from mnemoscope.systems.k_hop.analyses import exchanged_halves, readable
from mnemoscope.systems.k_hop.tasks import KHop

N_EXCHANGED = 512


def examine(run: Run) -> dict[str, xr.Dataset]:
    """All that any task of vectors has, probes of every number of hops, and the exchange of second halves."""
    task, seed, model = run.spec.task, run.spec.seed, run.hooked()
    assert isinstance(task, KHop)
    found = {
        **vector_report.examine(run, patterns),
        "readable": readable(model, run.untrained(own=True), task, seed=seed),
    }
    if not any(2 * hops in task.hops for hops in task.hops):
        return found
    base, source = (
        task.sample(N_EXCHANGED, split="test", generator=generator(seed, "exchange", side)) for side in (0, 1)
    )
    return {**found, "halves": exchanged_halves(model, task, base, source)}


def page(page: Page, results: Mapping[str, Results]) -> None:
    """The sections of the page."""
    vector_report.learned_section(page, results)
    readable_section(page, results)
    halves_section(page, results)
    vector_report.later_sections(page, results)


def readable_section(page: Page, results: Mapping[str, Results]) -> None:
    """The layer after which every number of hops can be read."""
    page.section("What can be read after which layer")
    page.text(
        "A linear probe for the symbol that so many hops lead to, one for all places, of the residual stream after "
        "every layer; in brackets behind it the same probe before training. One in N is chance. That something can be "
        "read does not say that the model reads it."
    )
    for label, result in results.items():
        page.heading(label)
        _layer_table(
            page, result["readable"], _cell_with_control, "Accuracy of the probe, mean over seeds (before training)"
        )


def _cell_with_control(cell: xr.Dataset) -> str:
    return f"{float(cell.accuracy.mean()):.2f} ({float(cell.untrained.mean()):.2f})"


def halves_section(page: Page, results: Mapping[str, Results]) -> None:
    """The layers that hold the second half of every composition."""
    shown = {label: result["halves"] for label, result in results.items() if "halves" in result}
    if not shown:
        return
    page.section("Which layer holds the intermediate results")
    page.text(
        "2r hops are r hops, and r more from the function reached then. After each layer the places of that function "
        "are set to what they are in another sequence. Where they hold the second half, the answer becomes that of "
        "the other sequence from there on: how often it does is the interchange accuracy; one in N is chance."
    )
    for label, halves in shown.items():
        page.heading(label)
        title = "Interchange accuracy of the second half, mean [range] over seeds"
        _layer_table(page, halves, lambda cell: mean_with_range(cell.accuracy, ".2f"), title)


def _layer_table(page: Page, found: xr.Dataset, words: Callable[[xr.Dataset], str], title: str) -> None:
    """A row for each number of hops, a column for each layer."""
    layers = found.layer.values.tolist()
    rows = [
        [str(hops), *(words(found.sel(hops=hops, layer=layer)) for layer in layers)]
        for hops in found.hops.values.tolist()
    ]
    page.table(["hops", *(f"after layer {layer}" for layer in layers)], rows, title)


def patterns(model: HookedModel, task: KHop, batch: Batch) -> xr.Dataset:
    """The attention of every head, with the symbol that every place shows."""
    return named_patterns(model, batch, [[str(symbol) for symbol in row] for row in batch.inputs.argmax(-1).tolist()])


def example_words(task: KHop, batch: Batch) -> tuple[str, str]:
    """The shown functions, and the longest composition that is asked at the last place."""
    shown = batch.inputs[0].argmax(-1).tolist()
    functions = [shown[i : i + task.n_symbols] for i in range(0, task.n_ctx, task.n_symbols)]
    written = ", ".join(f"s{i} = {' '.join(map(str, symbols))}" for i, symbols in enumerate(functions, 1))
    pos = int(batch.scored[0].nonzero()[-1])
    *_, hops = task.parts.values()
    answer = int(batch.targets[0, pos, hops].argmax())
    return f"{written}; {batch.positions[pos]} after {task.hops[-1]} hops", str(answer)


def parse(task: KHop, text: str) -> Batch:
    """One sequence as typed, k permutations of the N symbols, as numbers from 0; raises InputError otherwise."""
    words = text.replace(",", " ").split()
    for word in words:
        one_of("a symbol", word, [str(symbol) for symbol in range(task.n_symbols)])
    in_range("the number of symbols", len(words), task.n_ctx, task.n_ctx)
    shown = torch.tensor([int(word) for word in words]).view(1, task.n_functions, task.n_symbols)
    if (shown.sort(-1).values != torch.arange(task.n_symbols)).any():
        raise InputError(
            f"the symbols of each function must be a permutation of 0 to {task.n_symbols - 1}, and there are "
            f"{task.n_functions} functions; got {text!r}"
        )
    return task.batch(shown)


def predict(model: HookedModel, task: KHop, batch: Batch) -> xr.Dataset:
    """Squared errors as for any task of vectors, and over (hops, pos) the right symbols and the model's.

    To `vector_report.predict` come the symbols `due` and `guess`, and `value`, what the model gives for the right one.
    """
    found = vector_report.predict(model, task, batch, knows=read_from)
    outputs = predicted_vectors(model, batch)[0, found.pos.values.tolist()]
    due = batch.targets[0, found.pos.values.tolist()]
    columns: dict[str, list[list[float]]] = {"due": [], "guess": [], "value": []}
    for part in task.parts.values():
        right = due[:, part].argmax(-1)
        columns["due"].append(right.tolist())
        columns["guess"].append(outputs[:, part].argmax(-1).tolist())
        columns["value"].append(outputs[:, part].gather(1, right[:, None])[:, 0].tolist())
    return found.assign({name: (("hops", "pos"), rows) for name, rows in columns.items()}).assign_coords(
        hops=list(task.hops)
    )


def read_from(task: KHop, batch: Batch) -> list[str]:
    """The places that the hops of every place read, with what they show."""
    at, after = (
        torch.stack([batch.latents[f"{name}_{j + 1}"][0] for j in range(task.n_functions)], -1)
        for name in ("at", "after")
    )
    names = batch.positions
    reached = [
        [f"{names[place]}={symbol}" for place, symbol in zip(places, symbols, strict=True)]
        for places, symbols in zip(at.tolist(), after.tolist(), strict=True)
    ]
    return [" → ".join(row[: task.hops[-1]]) for row in reached]


def prediction_tables(result: xr.Dataset) -> list[Table]:
    """A row for each place: the places that its hops read, and by number of hops the right and the given symbol."""
    names = result.pos_name.values.tolist()
    rows = []
    for i, name in enumerate(names):
        at = result.isel(pos=i)
        cells = [
            f"{int(at.due.sel(hops=hops))}: {int(at.guess.sel(hops=hops))} ({float(at.value.sel(hops=hops)):.2f})"
            for hops in result.hops.values
        ]
        rows.append([name, str(at.known.item()), *cells])
    header = ["position", "hops read", *(f"{hops} hop{'s' if hops > 1 else ''}" for hops in result.hops.values)]
    title = "answer after each number of hops: prediction of the model (its value for the answer; 1 is exact)"
    return [Table(name="predictions", title=title, header=header, rows=rows, n_text=len(header))]


REPORTS.add(
    KHop.name,
    replace(
        vector_report.VECTORS,
        title="k-fold composition",
        about="A sequence shows k permutations of N symbols, new each time; k others are hidden and the same "
        "throughout. Every place asks which symbol they reach together, applied in turn for some number of "
        "hops.",
        example_words=example_words,
        analyse=examine,
        page=page,
        parse=parse,
        predict=predict,
        prediction_tables=prediction_tables,
        patterns=patterns,
        trajectory=skill_trajectory,
    ),
)
