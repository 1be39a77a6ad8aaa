"""`mnemoscope interchange`: two causal models of permutation lookup on the heads of a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mnemoscope as ms
from mnemoscope import InputError
from mnemoscope.cli import AnalysisOptions, Results, Shown, analysis_command
from mnemoscope.core import in_range


@dataclass(frozen=True, kw_only=True)
class Interchange(AnalysisOptions):
    """Interchange interventions: which of two causal models of elimination and recall the heads can be read as."""

    n: int = 1024
    """Sequences of each subgroup; one half chooses which heads carry which variable, the other tests it."""
    n_pairs: int = 2048
    """Pairs of sequences between which activations are exchanged, from either half."""
    n_random: int = 20
    """Random subspaces to compare with."""


NOTES = (
    "Two causal models give the same answers and differ when a variable is taken from another sequence. 'Elimination "
    "and recall': the set of values that stood as y, and the y that stood with this x before. 'Values and match': the "
    "y of every slot, and the slot where x stood before. Every variable gets a head of its own, with the MLP or "
    "without, chosen on one half of the prompts; its output where the answer is due is exchanged between two sequences "
    "of the other half. Interchange intervention accuracy is how often the network then answers as the causal model.",
    "'Changing' pairs are those where the causal model's answer becomes another one, so that a network left alone "
    "cannot score; on 'kept' pairs it stays, so that a head that carries more than the variable fails. The score of a "
    "causal model is the smallest accuracy over its variables, changing and kept. Controls: the place of the model's "
    "other variable, random subspaces as wide as a head, arbitrary answers to the same pairs, and an untrained network "
    "with the best places that it has.",
    "A score near 1 shows that the heads can be read as these variables on this distribution. It does not show that no "
    "other causal model can be read as well, nor that a variable is nowhere else besides; and a low one does not show "
    "that the variables are nowhere: two heads may write one together.",
)


def interchange_run(run: ms.Run, options: Interchange) -> Results:
    """Both causal models on one run, places by role, and on the same network before training, places by number."""
    from mnemoscope.systems.tiny_recall.analyses.causal_models import compare
    from mnemoscope.systems.tiny_recall.tasks import lookup_task

    task, model, seed = lookup_task(run.spec.task), run.hooked(options.step), run.spec.seed
    if model.cfg.n_layers * model.cfg.n_heads < 2:
        raise InputError(
            f"{run.path} has one head; both causal models have two variables, and each needs a head of its own: take "
            "runs with two heads or more"
        )
    found = {}
    for name, network in ms.core.told((("interchange", model), ("untrained", run.untrained(own=True)))):
        subject = ms.Subject(model=network, task=task, seed=seed)
        result = compare(subject, n=options.n, n_pairs=options.n_pairs, n_random=options.n_random, split=options.split)
        found[name] = result.assign(follows=result.attrs.pop("follows"))
    named = ms.analyses.last_roles(run)
    places = [ms.analyses.called(str(place), named) for place in found["interchange"]["place"].values]
    found["interchange"] = found["interchange"].assign_coords(place=("variable", places))
    return found


def _shown(results: Results, options: Interchange, runs: Sequence[ms.Run]) -> Shown:
    from mnemoscope.systems.tiny_recall.interchange_tables import (
        PLACE_HEADER,
        SCORE_HEADER,
        VARIABLE_HEADER,
        better_model,
        place_rows,
        score_figure,
        score_rows,
        seed_header,
        seed_rows,
        variable_rows,
    )

    trained, untrained = results["interchange"], results["untrained"]
    contents = (
        ("scores", "score of both causal models", SCORE_HEADER, score_rows(trained, untrained), 2),
        ("variables", "exchanged at the place of each variable", VARIABLE_HEADER, variable_rows(trained, untrained), 3),
        ("places", "places of the variables", PLACE_HEADER, place_rows(trained), 3),
        ("seeds", "scores by seed", seed_header(trained), seed_rows(trained, untrained), 1),
    )
    tables = [ms.viz.Table(name=name, title=title, header=h, rows=r, n_text=n) for name, title, h, r, n in contents]
    caption = "Score of both causal models; dots are seeds, a line joins those of one network."
    figures = [(caption, score_figure(trained, untrained))]
    return Shown(finding=better_model(trained), tables=tables, figures=figures, notes=NOTES)


def _check(options: Interchange) -> None:
    for name, given in (("--n-pairs", options.n_pairs), ("--n-random", options.n_random)):
        in_range(name, given, 1, float("inf"))


analysis_command("interchange", Interchange, measure=interchange_run, show=_shown, check=_check)
