"""Results on permutation lookup as rows of text."""

from collections.abc import Iterator, Mapping, Sequence

import xarray as xr

from mnemoscope.report import Results, single, spread
from mnemoscope.systems.tiny_recall.analyses.published import compare

LEARNED = 0.99
"""Accuracy on unseen mappings from which a skill counts as learned."""


def learned_skills(results: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Accuracy of elimination (fresh) and recall (repeats) on unseen mappings, over (seed, skill), and `learned`."""
    last = results["evaluation"].accuracy.sel(split="test").isel(pos=-1, drop=True)
    accuracy = last.sel(subgroup=["fresh", "repeat"]).rename(subgroup="skill")
    accuracy = accuracy.assign_coords(skill=["elimination", "recall"])
    return xr.Dataset({"accuracy": accuracy, "learned": accuracy >= LEARNED})


def learned_rows(results: Mapping[str, Results]) -> list[list[str]]:
    """For every configuration: both skills, how many seeds learned them, loss on training and on unseen mappings."""
    rows = []
    for label, result in results.items():
        each = learned_skills(result)
        loss = result["evaluation"].loss.sel(subgroup="all").mean("pos")
        counts = [f"{int(each.learned.sel(skill=s).sum())}/{each.sizes['seed']}" for s in ("elimination", "recall")]
        shares = [spread(each.accuracy.sel(skill=s)) for s in ("elimination", "recall")]
        rows.append(
            [label, shares[0], counts[0], shares[1], counts[1], *(spread(loss.sel(split=s)) for s in ("train", "test"))]
        )
    return rows


LEARNED_HEADER = ("configuration", "elimination", "learned", "recall", "learned", "loss, training", "loss, unseen")


def published_rows(result: Results, preset: str) -> list[list[str]]:
    """Published, ours (mean and range over seeds) and the difference, one row per figure."""
    table = compare(preset, result["sampled"], result["conflict"])
    rows = []
    for i in range(table.sizes["row"]):
        row = table.isel(row=i)
        slot = f"slot {int(row.slot)}" if int(row.slot) else "all slots"
        place = f"{row.subgroup.values!s}, {slot}" + (", training mappings" if row.split == "train" else "")
        rows.append(
            [
                f"{str(row.quantity.values).replace('_', ' ')}, {place}",
                single(float(row.published), ".6g"),
                single(float(row["mean"]), ".6f"),
                f"{float(row['min']):.6f} to {float(row['max']):.6f}",
                single(float(row.difference), "+.6f"),
            ]
        )
    return rows


PUBLISHED_HEADER = ("quantity, sequences, slot", "published", "ours", "range over seeds", "difference")


EVALUATION_HEADER = (
    "mappings, sequences, slot",
    "accuracy",
    "loss",
    "KL to Bayes",
    "mean abs. error",
    "max abs. error",
    "Bayes accuracy",
    "floor",
)


def evaluation_rows(evaluation: xr.Dataset) -> list[list[str]]:
    """Accuracy and loss, and the distance to the uniform posterior, by split, subgroup and slot, over seeds."""
    rows = []
    for name, at in _places(evaluation):
        bayes = at.sel(reference="bayes")
        cells = [at.accuracy, at.loss, bayes.kl, bayes.mean_abs_error, bayes.max_abs_error]
        rows.append([name, *(spread(cell) for cell in (*cells, bayes.best_accuracy, bayes.floor))])
    return rows


def reference_header(evaluation: xr.Dataset) -> Sequence[str]:
    """Column names of `reference_rows`."""
    return ("mappings, sequences, slot", *(str(name).replace("_", ", ") for name in evaluation.reference.values))


def reference_rows(evaluation: xr.Dataset) -> list[list[str]]:
    """KL divergence (nats) from every exact predictor to the model, by split, subgroup and slot, over seeds.

    Infinite where the model excludes what the predictor allows. Sequences on which the predictor is undefined are left
    out, and the share of the others follows; a dash where there are none.
    """
    return [
        [name, *(_distance(at.sel(reference=reference)) for reference in evaluation.reference.values)]
        for name, at in _places(evaluation)
    ]


def _distance(at: xr.Dataset) -> str:
    defined = float(at.defined.mean())
    return spread(at.kl) + (f" on {defined:.0%}" if 0 < defined < 1 else "")


def _places(evaluation: xr.Dataset) -> Iterator[tuple[str, xr.Dataset]]:
    """Every split and slot; subgroups are distinguished in the last slot only, since before it they are the same."""
    last = evaluation.sizes["pos"]
    for split in evaluation.split.values:
        for slot in range(1, last + 1):
            groups = evaluation.subgroup.values.tolist()[1:] if slot == last else ["all"]
            for group in groups:
                yield (
                    f"{split}, {group}, slot {slot}",
                    evaluation.sel(split=split, subgroup=group).isel(pos=slot - 1),
                )


CONFLICT_HEADER = (
    "slot that the last x repeats",
    "p(recalled)",
    "p(unused)",
    "p(other)",
    "chose recalled",
    "chose unused",
)


def conflict_rows(conflict: xr.Dataset) -> list[list[str]]:
    """Probability and choice of either answer on the conflict set, by the slot that is repeated, over seeds."""
    names = ("p_recalled", "p_unused", "p_other", "chose_recalled", "chose_unused")
    return [
        [f"slot {int(slot)}", *(spread(conflict[name].sel(source_slot=slot)) for name in names)]
        for slot in conflict.source_slot.values
    ]
