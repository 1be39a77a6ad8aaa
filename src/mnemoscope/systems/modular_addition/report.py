"""The report on runs of modular addition: circles, the two numbers, the forms of logits, and the published table.

Published are means over 1,561 models of p = 59 with circular embeddings, in six bins of the share c of the softmax in
attention. Models that did not learn the task are left out of the table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
import xarray as xr

from mnemoscope import REPORTS, Batch, HookedModel, InputError, Run, Subject
from mnemoscope.analyses import place_original
from mnemoscope.core import attention_mix, in_range, one_of
from mnemoscope.report import Page, Results, Table, mean_with_range
from mnemoscope.report import plain_report as plain
from mnemoscope.systems.modular_addition.analyses.circles import embedding_modes, forms, key_frequency_losses
from mnemoscope.systems.modular_addition.analyses.gradients import symmetry
from mnemoscope.systems.modular_addition.analyses.one_map import one_map
from mnemoscope.systems.modular_addition.tasks import ModularAddition

PUBLISHED = {
    (0.0, 0.1): (0.976, 0.402),
    (0.1, 0.25): (0.986, 0.390),
    (0.25, 0.5): (0.969, 0.398),
    (0.5, 0.75): (0.821, 0.573),
    (0.75, 0.9): (0.607, 0.745),
    (0.9, 1.0): (0.466, 0.824),
}
"""Mean symmetricity and irrelevance by bin of c; the last bin has both its ends."""
WORDS = {
    "symmetricity": "gradient symmetricity",
    "irrelevance": "distance irrelevance",
    "evened": "symmetricity with even attention",
    "clock": "logits: clock's form",
    "pizza": "logits: pizza's form",
    "few": "embedding: five largest modes",
    "round": "embedding: roundness",
    "n_key": "key frequencies",
    "restricted": "restricted loss",
    "excluded": "excluded loss",
    "excluded_accuracy": "excluded accuracy",
    "map": "one map: accuracy",
    "phases": "one map: phases",
    "accuracy": "accuracy over all sums",
}
"""The numbers of a model, in words."""
LEARNED = 0.99


def numbers_of(model: HookedModel, task: ModularAddition) -> xr.Dataset:
    """All numbers of one model as scalars, by the names of `WORDS`."""
    found = symmetry(model, task)
    shape, modes = forms(model, task).share, embedding_modes(model, task)
    losses, read = key_frequency_losses(model, task), one_map(model, task)
    loss, right = losses.loss, losses.accuracy
    return xr.Dataset(
        {
            **{name: found[name] for name in ("symmetricity", "irrelevance", "evened")},
            **{form: shape.sel(form=form, drop=True) for form in ("clock", "pizza")},
            **{name: modes[name] for name in ("few", "round")},
            "n_key": losses.n_key,
            **{name: loss.sel(logits=name, drop=True) for name in ("restricted", "excluded")},
            "excluded_accuracy": right.sel(logits="excluded", drop=True),
            "map": read.accuracy,
            "phases": read.phases,
            "accuracy": right.sel(logits="all", drop=True),
        }
    )


def examine(run: Run) -> dict[str, xr.Dataset]:
    """Results as for any task of tokens, and the numbers of the model with its share of the softmax."""
    task = run.spec.task
    assert isinstance(task, ModularAddition)
    found = numbers_of(run.hooked(), task).assign_attrs(attention_mix=run.spec.model.attention_mix)
    return {**plain.examine(run), "algorithm": found}


def bin_of(mix: float) -> tuple[float, float]:
    """The published bin that holds a share of the softmax."""
    in_range("attention_mix", mix, 0, 1)
    return next(each for each in PUBLISHED if mix < each[1] or each[1] == 1)


def published_table(results: Mapping[str, Results]) -> Table:
    """Symmetricity and irrelevance by bin of c: published, and ours, mean [range] over the models that learned."""
    ours: dict[tuple[float, float], list[xr.Dataset]] = {each: [] for each in PUBLISHED}
    for result in results.values():
        found = result["algorithm"]
        ours[bin_of(float(found.attrs["attention_mix"]))].append(found.isel(seed=(found.accuracy >= LEARNED).values))
    rows = []
    for (low, high), (symmetric, irrelevant) in PUBLISHED.items():
        models = [each for each in ours[low, high] if each.sizes["seed"]]
        cells, n = ["–", "–"], 0
        if models:
            both = [xr.concat([each[name] for each in models], "seed") for name in ("symmetricity", "irrelevance")]
            cells, n = [mean_with_range(each, ".3f") for each in both], both[0].sizes["seed"]
        rows.append([f"{low:g} to {high:g}", str(n), f"{symmetric:.3f}", cells[0], f"{irrelevant:.3f}", cells[1]])
    header = ["share of the softmax", "models"]
    header += [f"{name}: {whose}" for name in ("symmetricity", "irrelevance") for whose in ("published", "ours")]
    title = f"By share of the softmax; ours: mean [range] over models with an accuracy of {LEARNED:g} or more"
    return Table(name="published", title=title, header=header, rows=rows)


def algorithm_table(results: Mapping[str, Results]) -> Table:
    """All numbers of all configurations."""
    rows = [
        [words, *(mean_with_range(result["algorithm"][name], ".3f") for result in results.values())]
        for name, words in WORDS.items()
    ]
    return Table(
        name="algorithm", title="Clock or pizza: mean [range] over seeds", header=["number", *results], rows=rows
    )


def original_table(originals: Mapping[str, Subject], results: Mapping[str, Results]) -> Table:
    """Every number of published models, beside those of the seeds whose share of the softmax lies in the same bin.

    The rank is that of the original among the seeds and itself, from 1, the smallest.
    """
    rows = []
    for name, original in originals.items():
        assert isinstance(original.task, ModularAddition)
        found, mix = numbers_of(original.model, original.task), attention_mix(original.model)
        here = bin_of(mix)
        same = [
            result["algorithm"]
            for result in results.values()
            if bin_of(float(result["algorithm"].attrs["attention_mix"])) == here
        ]
        for quantity, words in WORDS.items():
            own = float(found[quantity])
            row = [name, f"{mix:.3g}", words, f"{own:.3f}"]
            if not same:
                rows.append([*row, "–", "–"])
                continue
            seeds = xr.concat([each[quantity] for each in same], "seed")
            place = place_original(found[quantity], seeds)
            rows.append([*row, mean_with_range(seeds, ".3f"), f"{int(place['rank'])} of {int(place.n)}"])
    header = ["original", "share of the softmax", "number", "original's", "seeds", "rank"]
    return Table(name="originals", title="Published models beside seeds", header=header, rows=rows, n_text=3)


def tables(results: Mapping[str, Results]) -> list[Table]:
    """The tables of any task of tokens, the numbers of every configuration, and the published table beside ours."""
    return [*plain.tables(results), algorithm_table(results), published_table(results)]


def page(page: Page, results: Mapping[str, Results]) -> None:
    """The sections of the page."""
    plain.learned_section(page, results)
    algorithm_section(page, results)
    for section in (plain.ablation_section, plain.training_section, plain.view_section):
        section(page, results)


def algorithm_section(page: Page, results: Mapping[str, Results]) -> None:
    """Clock or pizza, and the published table."""
    page.section("Clock or pizza")
    page.text(
        "Symmetricity is the mean cosine between the gradients of a logit with respect to both embeddings; "
        "irrelevance says how little the right logit depends on the difference of the numbers. Forms are shares of the "
        "logits' variance. A table of answers has a clock's symmetricity, irrelevance and form, and no few modes."
    )
    page.show(algorithm_table(results))
    page.show(published_table(results))


def parse(task: ModularAddition, text: str) -> Batch:
    """One sequence as typed, such as `17 5` or `17 5 =`; raises InputError otherwise."""
    words = text.replace(",", " ").replace("+", " ").split()
    if task.equals and words[-1:] == ["="]:
        words = words[:-1]
    if len(words) != 2:
        raise InputError(f"a sequence has two numbers; got {text!r}; type them like 17 5")
    for word in words:
        one_of("a number", word, [str(number) for number in range(task.modulus)])
    first, second = (torch.tensor([int(word)]) for word in words)
    return task.batch(first, second)


def known_of(task: ModularAddition, batch: Batch) -> Sequence[str]:
    """The sum where it is due, and whether it trains."""
    known = {name: int(values[0]) for name, values in batch.latents.items()}
    words = [""] * batch.inputs.shape[1]
    trains = "" if task.split_seed is None else ", trains" if task.trained()[known["a"], known["b"]] else ", held out"
    words[-1] = f"{known['a']} + {known['b']} = {known['sum']}{trains}"
    return words


def predict(model: HookedModel, task: ModularAddition, batch: Batch) -> xr.Dataset:
    """The likeliest answers, beside the sum."""
    return plain.predict(model, task, batch, knows=known_of)


def example_words(task: ModularAddition, batch: Batch) -> tuple[str, str]:
    """The numbers with a plus sign, and their sum."""
    known = {name: int(values[0]) for name, values in batch.latents.items()}
    return f"{known['a']} + {known['b']} modulo {task.modulus}", str(known["sum"])


REPORTS.add(
    ModularAddition.name,
    replace(
        plain.PLAIN,
        title="Modular addition: clocks and pizzas",
        about="Two numbers are added modulo p. A part of all sums trains, and the others are held out.",
        example_words=example_words,
        analyse=examine,
        page=page,
        tables=tables,
        parse=parse,
        predict=predict,
    ),
)
