"""The figures that were published of the originals, beside ours.

Heads are named by role, since numbers mean nothing over seeds: of palindromes the heads of either layer that are not
the comparer or the reporter, of sorted lists the head that the answers need less and the one that they need more.
Of first unique letters and sums no figure was published.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
import xarray as xr

from mnemoscope import Intervention, Mean, Named, Site, Subject, ablate
from mnemoscope.analyses import describe_rank, place_original
from mnemoscope.report import Results, Table, mean_with_range
from mnemoscope.systems.puzzles.analyses import brackets, palindrome, running_sum, sorted_list
from mnemoscope.systems.puzzles.tasks.brackets import Brackets
from mnemoscope.systems.puzzles.tasks.palindrome import Palindrome
from mnemoscope.systems.puzzles.tasks.running_sum import RunningSum
from mnemoscope.systems.puzzles.tasks.sorted_list import SortedList

N_SEQUENCES = 4096
"""Palindromes and others on which losses are measured."""
REPAIRED = 20
"""The place at which the other heads of the published palindrome model repair pairs."""
NESTED = "(" * 15 + ")" * 15 + ")(" + "(" * 4 + ")" * 4
"""Nested runs of 30 and 8 with one place of negative elevation."""


def of_palindromes(subject: Subject) -> dict[str, float]:
    """Loss and mean logit difference, and the loss with the heads without a role at their mean."""
    batch = palindrome.sequences(subject, "published", N_SEQUENCES)
    source = Named(name="sequences", value=palindrome.sequences(subject, "reference"))
    heads = palindrome.roles(subject)
    first = Site(kind="z", layer=0, head=1 - heads.comparer)
    second = Site(kind="v", layer=1, head=1 - heads.reporter)

    def scores(interventions: Sequence[Intervention] = ()) -> torch.Tensor:
        return palindrome.scores(subject.model, batch, interventions)

    def loss(site: Site, *places: int | None) -> float:
        sites = [Site(kind=site.kind, layer=site.layer, head=site.head, pos=each) for each in places]
        return _cross_entropy(scores([Mean(site=each, source=source) for each in sites]))

    elsewhere = [place for place in range(subject.task.n_ctx) if place != REPAIRED]
    whole = scores()
    return {
        "loss": _cross_entropy(whole),
        "difference": float(whole.mean()),
        "first": loss(first, None),
        "first elsewhere": loss(first, *elsewhere),
        "second": loss(second, None),
        "second elsewhere": loss(second, *elsewhere),
    }


def _cross_entropy(scores: torch.Tensor) -> float:
    """Mean loss of two classes, from the logit of the right one minus that of the other."""
    return float(torch.nn.functional.softplus(-scores).mean())


def of_sorted_lists(subject: Subject) -> dict[str, float]:
    """The loss with either head at its mean."""
    batch = sorted_list.lists(subject, "published")
    lost = ablate(subject.model, batch, skills={"answer": batch.scored}, reference=batch, kinds=("mean",))
    less, more = sorted((-lost.log_prob.sel(component=["L0H0", "L0H1"]).values.flatten()).tolist())
    return {"less": less, "more": more}


def of_running_sums(subject: Subject) -> dict[str, float]:
    """Loss and probability with silent neurons, and cosines of the direction with the unembedding."""
    silent, written = running_sum.without_neurons(subject), running_sum.mean_or_sum(subject)
    cosines = {name: value for name, value in written.items() if name.startswith("cos ")}
    return {"loss": silent["loss"], "right": silent["right"], **cosines}


@torch.no_grad()
def of_brackets(subject: Subject) -> dict[str, float]:
    """The probability of *balanced* on nested runs, of which it is not right."""
    batch = brackets.brackets_task(subject.task).parse(NESTED)
    return {"nested": float(torch.sigmoid(-brackets.scores(subject.model, batch)))}


class Published(NamedTuple):
    """The published figures of one puzzle, and the measure of ours."""

    measure: Callable[[Subject], dict[str, float]]
    figures: Mapping[str, tuple[str, float, str]]
    """By quantity: in words, the published value, and the form of the numbers."""


PUBLISHED = {
    Palindrome.name: Published(
        of_palindromes,
        {
            "loss": ("loss", 0.008, ".3f"),
            "difference": ("mean logit difference", 7.489, ".2f"),
            "first": ("loss, output of the other head of layer 0 at its mean", 0.118, ".3f"),
            "first elsewhere": (f"the same, but not at place {REPAIRED}", 0.010, ".3f"),
            "second": ("loss, values of the other head of layer 1 at their mean", 0.014, ".3f"),
            "second elsewhere": (f"the same, but not at place {REPAIRED}, of values", 0.008, ".3f"),
        },
    ),
    SortedList.name: Published(
        of_sorted_lists,
        {
            "less": ("loss without the head that is needed less", 0.920, ".3f"),
            "more": ("loss without the head that is needed more", 4.963, ".3f"),
        },
    ),
    RunningSum.name: Published(
        of_running_sums,
        {
            "loss": ("loss without the MLP", 0.536, ".3f"),
            "right": ("mean probability of the right sign without the MLP", 0.637, ".3f"),
            "cos positive": ("cosine of the direction with positive", 0.970, ".3f"),
            "cos negative": ("cosine of the direction with negative", -0.958, ".3f"),
            "cos both": ("cosine of positive and negative", -0.949, ".3f"),
        },
    ),
    Brackets.name: Published(
        of_brackets, {"nested": ("nested runs are called balanced, probability", 0.999856, ".3f")}
    ),
}
"""By task."""


def published_table(results: Mapping[str, Results], tasks: Mapping[str, str]) -> list[Table]:
    """Every published figure beside the seeds of every configuration, with its rank; none where nothing is known.

    `tasks`: names of the tasks by configuration.
    """
    rows = []
    for label, result in results.items():
        if "published" not in result:
            continue
        for name, (words, value, form) in PUBLISHED[tasks[label]].figures.items():
            ours = result["published"][name]
            place = place_original(xr.DataArray(value), ours)
            rank = describe_rank(int(place["rank"]), int(place["n"])) if ours.sizes["seed"] > 1 else "–"
            rows.append([label, words, f"{value:{form}}", mean_with_range(ours, form), rank])
    header = ["configuration", "quantity", "published", "ours", "place of the published figure"]
    title = "Beside the published figures: mean [range] over seeds; heads by role"
    return [Table(name="published", title=title, header=header, rows=rows, n_text=2)] if rows else []
