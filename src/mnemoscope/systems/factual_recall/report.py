"""The report on runs of factual recall: what was learned, who stores it, and the stages in which it was learned.

One sequence as it is typed: tokens are called a0, a1, … (answers), s0, … (subjects), r0, … (relations), n0, … (noise),
and ? is the query.
"""

from collections.abc import Mapping
from dataclasses import replace

import plotly.graph_objects as go
import torch
import xarray as xr

from mnemoscope import REPORTS, Batch, HookedModel, InputError, Run
from mnemoscope.analyses import named_patterns
from mnemoscope.core import in_range
from mnemoscope.report import (
    DRAW_REPORTS,
    LAYOUT,
    DrawReport,
    Opening,
    Page,
    Results,
    assign_colours,
    bars_with_dots,
    mean_with_range,
    plain_report,
    trajectory_curves,
)
from mnemoscope.report import plain_report as plain
from mnemoscope.systems.factual_recall import scaling_report
from mnemoscope.systems.factual_recall.analyses import (
    attending,
    fact_memories,
    facts_task,
    routes,
    stages,
    stores,
    trajectory,
)
from mnemoscope.systems.factual_recall.tasks import FactualRecall

_PANELS = {
    "loss of relation and subject, nats": ("loss_relation", "loss_subject"),
    "divergence from p(a | r) and p(a | s), nats": ("kl_relation", "kl_subject"),
}
_ROUTES = {
    "both": "the whole model",
    "attention": "attention alone",
    "mlp": "through the MLP alone",
    "neither": "neither",
}
_STORES = {
    "attention": "attention alone",
    "mlp": "the route through the MLP alone",
    "either": "either of them",
    "only both": "only both together",
    "neither": "nothing: it is not known",
}
_MEMORIES = {"OV": "OV circuits", "MLP": "MLP", "both": "both"}
_WORDS = {
    "relation_known": "relation known",
    "hallucinates_from": "answers by the relation alone: from",
    "hallucinates_until": "answers by the relation alone: until",
    "fact_known": "fact known",
}


def examine(run: Run) -> dict[str, xr.Dataset]:
    """Results as for any task of tokens, the stores of the facts, and the trajectory with its stages, if tracked."""
    found, followed, task = plain.examine(run), run.trajectory(), facts_task(run.spec.task)
    if run.spec.model.n_layers == 1 and run.spec.model.normalization == "none":
        model = run.hooked()
        by_route = routes(model, task, seed=run.spec.seed)
        mean = by_route.accuracy.mean(("subject", "relation"))
        stored = xr.Dataset({"accuracy": mean, "share": stores(by_route)})
        found |= {"stores": stored, "memories": fact_memories(model, task, seed=run.spec.seed)}
    if followed is None:
        return found
    onsets = stages(followed, n_relations=task.n_relations, n_answers=task.n_answers)
    return {**found, "trajectory": followed, "stages": onsets}


def numbers(run: Run) -> dict[str, float]:
    """Numbers for sweeps, from a model of one layer with softmax attention.

    They are accuracy by one route alone, the other removed by its mean (`by_attention`, `by_mlp`) or exchanged
    (`..._resampled`), and with attention replaced (`without_noise`, `mean_attention`); the share of facts that take
    both routes (`only_both`), and of those that weights recall.
    """
    model, task, seed = run.hooked(), facts_task(run.spec.task), run.spec.seed
    if run.spec.model.n_layers != 1 or not run.spec.model.softmax:
        return {}
    by_mean, by_resampling = (routes(model, task, removed=removed, seed=seed) for removed in ("mean", "resample"))
    alone = {
        f"by_{route}{ending}": found.accuracy.sel(route=route)
        for ending, found in (("", by_mean), ("_resampled", by_resampling))
        for route in ("attention", "mlp")
    }
    attended, recall = attending(model, task, seed=seed), fact_memories(model, task, seed=seed).recall
    found = {
        **alone,
        "only_both": stores(by_mean).sel(store="only both"),
        "without_noise": attended.sel(pattern="no noise"),
        "mean_attention": attended.sel(pattern="mean"),
        **{f"recalled_by_{str(memory).lower()}": recall.sel(memory=memory) for memory in recall.memory.values},
    }
    return {name: float(values.mean()) for name, values in found.items()}


def page(page: Page, results: Mapping[str, Results]) -> None:
    """The sections of the page."""
    plain.learned_section(page, results)
    stores_section(page, results)
    stages_section(page, results)
    for section in (plain.ablation_section, plain.training_section, plain.view_section):
        section(page, results)


def opening(result: Results) -> Opening | None:
    """Knowledge of a fact along training, where that was tracked, and the parts that answers need."""
    found = plain.opening(result)
    if "trajectory" not in result:
        return found
    followed = ("Along training: one line per seed.", trajectory_curves(result["trajectory"], _PANELS))
    return replace(found, figures=[followed, *found.figures[1:]])


def stores_section(page: Page, results: Mapping[str, Results]) -> None:
    """The routes that answer facts, and the recall of the weights."""
    shares = {label: result["stores"].share for label, result in results.items() if "stores" in result}
    if not shares:
        return
    page.section("Who stores the facts")
    page.text(
        "Answers come straight from attention, or from attention through the MLP. One of the two is removed from what "
        "the logits read, by its mean over all facts. A fact is stored where one route alone is enough for it."
    )
    page.figure(stores_figure(shares), "What is enough for a fact. Dots are seeds, bars their mean.")
    for label in shares:
        page.heading(label)
        stored, recall = results[label]["stores"], results[label]["memories"].recall
        rows = [[_ROUTES[name], mean_with_range(stored.accuracy.sel(route=name), ".2f")] for name in _ROUTES]
        page.table(["route", "accuracy"], rows, "Mean [range] over seeds")
        rows = [[_STORES[name], mean_with_range(stored.share.sel(store=name), ".2f")] for name in _STORES]
        page.table(["enough for a fact is", "share of the facts"], rows)
        rows = [
            [_MEMORIES[name], mean_with_range(recall.sel(memory=name), ".2f")] for name in recall.memory.values.tolist()
        ]
        page.table(["weights", "facts recalled"], rows, "Memory-recall scores: read from the weights, noise aside")


def stores_figure(shares: Mapping[str, xr.DataArray]) -> go.Figure:
    """The share of the facts in each store, side by side for configurations; `shares` are over (seed, store)."""
    figure = go.Figure()
    for i, (store, colour) in enumerate(assign_colours(_STORES).items()):
        places = [place + 0.16 * (i - (len(_STORES) - 1) / 2) for place in range(len(shares))]
        cells = [share.sel(store=store) for share in shares.values()]
        traces = bars_with_dots(cells, places, name=_STORES[store], colour=colour, width=0.14, legend=True)
        figure.add_traces(traces)
    names = [label.replace("-", "-<br>", 1) for label in shares]
    figure.update_xaxes(tickvals=list(range(len(shares))), ticktext=names)
    figure.update_yaxes(title="share of the facts", range=[-0.03, 1.05])
    return figure.update_layout(**LAYOUT, height=400)


def stages_section(page: Page, results: Mapping[str, Results]) -> None:
    """Knowledge of a fact along training."""
    page.section("What is known of a fact, and when")
    page.text(
        "The loss of a fact is that of its relation plus that of its subject given the relation. Where the divergence "
        "from p(a | r) is small, a model answers by the relation alone: one of its answers, whatever the subject is."
    )
    for label, result in results.items():
        page.heading(label)
        if "stages" not in result:
            page.text("Not tracked yet: `mnemoscope evaluate --checkpoints` takes these measures.")
            continue
        page.figure(trajectory_curves(result["trajectory"], _PANELS), "One line per seed.")
        rows = [[words, *_stage_cell(result["stages"][name])] for name, words in _WORDS.items()]
        near = result["stages"].attrs["near"]
        title = f"Steps, mean [range] over seeds; by the relation alone: at most {near} nats from p(a | r)"
        page.table(["stage", "seeds", "step"], rows, title)
        share = mean_with_range(result["stages"].share, ".2f")
        page.text(f"Until the fact is known the relation alone answers for this share of the steps: {share}.")


def _stage_cell(steps: xr.DataArray) -> list[str]:
    """The number of seeds that reach a stage, and the steps."""
    there = steps.dropna("seed")
    return [f"{there.size} of {steps.size}", mean_with_range(there, ".0f") if there.size else "never"]


def symbols(task: FactualRecall) -> list[str]:
    """The names of tokens, in their order."""
    sizes = {"a": task.d_vocab_out, "s": task.n_subjects, "r": task.n_relations, "n": task.n_noise}
    return [*(f"{kind}{i}" for kind, size in sizes.items() for i in range(size)), "?"]


def parse(task: FactualRecall, text: str) -> Batch:
    """One sequence as typed, such as `n3 s5 n0 r2 ?`: symbols or numbers, the query last; InputError otherwise."""
    words = text.replace(",", " ").split()
    in_range("the number of tokens", len(words), 3, task.length)
    numbers = {symbol: token for token, symbol in enumerate(symbols(task))}
    for word in words:
        if word not in numbers and not (word.isdecimal() and int(word) < task.d_vocab):
            raise InputError(
                f"a token must be a number below {task.d_vocab}, or one of a0 … (answers), s0 … (subjects), r0 … "
                f"(relations), n0 … (noise) and ?; got {word!r}"
            )
    tokens = torch.tensor([[numbers[word] if word in numbers else int(word) for word in words]])
    first = task.first
    subjects = (tokens >= first["subject"]) & (tokens < first["relation"])
    relations = (tokens >= first["relation"]) & (tokens < first["noise"])
    queries = tokens == first["query"]
    if [int(mask.sum()) for mask in (subjects, relations, queries)] != [1, 1, 1] or not queries[0, -1]:
        raise InputError(f"a sequence has one subject and one relation, and the query ? last; got {text!r}")
    targets = torch.zeros_like(tokens)
    number = {name: int(tokens[mask]) - first[name] for name, mask in (("subject", subjects), ("relation", relations))}
    targets[0, -1] = task.table()[number["subject"], number["relation"]]
    return Batch(inputs=tokens, targets=targets, scored=queries, derive=task.latents)


def patterns(model: HookedModel, task: FactualRecall, batch: Batch) -> xr.Dataset:
    """The attention of every head on every sequence, with the symbols of the tokens."""
    return named_patterns(model, batch, symbols(task))


def predict(model: HookedModel, task: FactualRecall, batch: Batch) -> xr.Dataset:
    """The likeliest answers at the query, beside the fact; elsewhere there is no answer."""
    found = plain_report.predict(model, task, batch, reference="fact", knows=known_of)
    due = xr.DataArray(batch.scored[0].tolist(), dims="pos")
    tokens = {name: found[name].where(due, -1) for name in ("following", "guess", "ideal_guess")}
    shares = {name: found[name].where(due) for name in ("p_following", "p_guess", "ideal_p_following", "ideal_p_guess")}
    return found.assign({**tokens, **shares}).assign_coords(symbol=("token_number", symbols(task)))


def known_of(task: FactualRecall, batch: Batch) -> list[str]:
    """The subject, the relation, and the fact at the query, by position."""
    known = {name: int(values[0]) for name, values in batch.latents.items()}
    words, called = [""] * batch.inputs.shape[1], symbols(task)
    words[known["subject_pos"]], words[known["relation_pos"]] = "the subject", "the relation"
    relation, n = known["relation"], task.n_answers
    answers = called[relation * n : (relation + 1) * n]
    words[-1] = f"the fact {called[int(batch.targets[0, -1])]}; r{relation} has {answers[0]} to {answers[-1]}"
    return words


REPORTS.add(
    FactualRecall.name,
    replace(
        plain.PLAIN,
        title="Factual recall",
        about="A subject s and a relation r stand anywhere among noise tokens n; the query at the end asks for the "
        "fact that belongs to the two. Facts are the same in all sequences of a model, which learns them by "
        "heart.",
        analyse=examine,
        page=page,
        opening=opening,
        parse=parse,
        predict=predict,
        patterns=patterns,
        trajectory=trajectory,
        numbers=numbers,
        symbols=symbols,
    ),
)
DRAW_REPORTS.add(
    "factual-recall",
    DrawReport(title="How many facts are learned", tables=scaling_report.tables, page=scaling_report.page),
)
