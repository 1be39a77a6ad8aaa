"""Public names, loaded when they are first used; old names work for one release, with a warning that gives the new one.

A name that is looked for in the wrong room, or misspelt, is refused with the place where it is, or the nearest names.
`OLD_NAMES` is the one table of old names. `docs/migration.md` is made from it.
"""

import ast
import importlib
import warnings
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import lazy_loader

OLD_NAMES: Mapping[str, str] = {
    "mnemoscope.analyses.LEARNED": "mnemoscope.claims.LEARNED",
    "mnemoscope.core.told": "mnemoscope.core.progress",
    "mnemoscope.core.kept": "mnemoscope.core.memoize",
    "mnemoscope.core.otherwise": "mnemoscope.core.with_fallback",
    "mnemoscope.models.planted": "mnemoscope.models.set_by_hand",
    "mnemoscope.models.together": "mnemoscope.models.combined",
    "mnemoscope.models.Plant": "mnemoscope.models.ControlMaker",
    "mnemoscope.models.FIRST_PLANTED": "mnemoscope.models.FIRST_CONTROL_SEED",
    "mnemoscope.models.constructed.predicting": "mnemoscope.models.constructed.predict_exactly",
    "mnemoscope.models.constructed.following": "mnemoscope.models.constructed.prescribe_course",
    "mnemoscope.models.constructed.jump": "mnemoscope.models.constructed.step_course",
    "mnemoscope.models.constructed.blank": "mnemoscope.models.constructed.zero_model",
    "mnemoscope.models.constructed.move": "mnemoscope.models.constructed.set_value_output",
    "mnemoscope.models.constructed.attend": "mnemoscope.models.constructed.set_query_key",
    "mnemoscope.models.constructed.embed": "mnemoscope.models.constructed.set_embeddings",
    "mnemoscope.models.constructed.blocks": "mnemoscope.models.constructed.dimension_blocks",
    "mnemoscope.models.constructed.Circuit": "mnemoscope.models.constructed.CircuitParts",
    **{
        f"mnemoscope.analyses.{name}": f"mnemoscope.systems.in_context_bigrams.analyses.{name}"
        for name in (
            "LEAST",
            "Over",
            "copied_token",
            "induction_memories",
            "memory_maps",
            "previous_token",
            "remapped_copy",
        )
    },
    "mnemoscope.analyses.along": "mnemoscope.analyses.concatenate",
    "mnemoscope.analyses.called": "mnemoscope.analyses.rename_heads",
    "mnemoscope.analyses.named_in": "mnemoscope.analyses.roles_of",
    "mnemoscope.analyses.patterns_of_sequences": "mnemoscope.analyses.named_patterns",
    "mnemoscope.core.summary_over": "mnemoscope.core.mean_and_range",
    "mnemoscope.interventions.intervened": "mnemoscope.interventions.intervene",
    "mnemoscope.analyses.paths": "mnemoscope.analyses.attention_paths",
    "mnemoscope.analyses.Circuit": "mnemoscope.analyses.AttentionCircuit",
    "mnemoscope.analyses.of_learners": "mnemoscope.analyses.select_learners",
    "mnemoscope.analyses.of_learned_skills": "mnemoscope.analyses.select_learned_skills",
    "mnemoscope.analyses.partners": "mnemoscope.analyses.draw_differing_sequences",
    "mnemoscope.analyses.learned": "mnemoscope.analyses.lowest_skill_accuracy",
    "mnemoscope.analyses.evaluated": "mnemoscope.analyses.evaluate_subject",
    "mnemoscope.analyses.sequences": "mnemoscope.analyses.subgroup_sequences",
    "mnemoscope.analyses.normalised": "mnemoscope.analyses.to_log_probs",
    "mnemoscope.analyses.beyond_chance": "mnemoscope.analyses.chance_threshold",
    "mnemoscope.analyses.Direction": "mnemoscope.analyses.ThresholdDirection",
    "mnemoscope.analyses.counts": "mnemoscope.analyses.target_counts",
    "mnemoscope.analyses.Kept": "mnemoscope.analyses.SpectrumPart",
    "mnemoscope.analyses.KEPT": "mnemoscope.analyses.SPECTRUM_PARTS",
    "mnemoscope.analyses.ALL": "mnemoscope.analyses.ALL_SEQUENCES",
    "mnemoscope.analyses.HALF": "mnemoscope.analyses.ONSET_THRESHOLD",
    "mnemoscope.analyses.SCORES": "mnemoscope.analyses.TARGET_SCORES",
    "mnemoscope.analyses.Targets": "mnemoscope.analyses.TokenTargets",
    "mnemoscope.analyses.Weights": "mnemoscope.analyses.WeightSets",
    "mnemoscope.analyses.product": "mnemoscope.analyses.weight_product",
    "mnemoscope.analyses.weight": "mnemoscope.analyses.weight_matrix",
    "mnemoscope.analyses.embeddings": "mnemoscope.analyses.embedding_vectors",
    "mnemoscope.analyses.recall": "mnemoscope.analyses.recall_score",
    "mnemoscope.analyses.nodes": "mnemoscope.analyses.circuit_nodes",
    "mnemoscope.analyses.removal": "mnemoscope.analyses.make_removal",
    "mnemoscope.analyses.Removal": "mnemoscope.analyses.RemovalKind",
    "mnemoscope.analyses.chosen_indices": "mnemoscope.analyses.check_indices",
    "mnemoscope.analyses.difference": "mnemoscope.analyses.paired_difference",
    "mnemoscope.run.Largest": "mnemoscope.run.SizeSearch",
    "mnemoscope.run.swept": "mnemoscope.run.final_metrics",
    "mnemoscope.claims.record": "mnemoscope.claims.ruling_record",
    "mnemoscope.report.colours_of": "mnemoscope.report.assign_colours",
    "mnemoscope.report.symbols_of": "mnemoscope.report.token_symbols",
    "mnemoscope.report.single": "mnemoscope.report.single_number",
    "mnemoscope.report.spread": "mnemoscope.report.mean_with_range",
    "mnemoscope.report.report_of": "mnemoscope.report.find_report",
    "mnemoscope.report.view_of": "mnemoscope.report.run_attention",
    "mnemoscope.records.Measured": "mnemoscope.records.MeasuredRuns",
    "mnemoscope.records.Shown": "mnemoscope.records.Display",
    "mnemoscope.records.shown": "mnemoscope.records.render_results",
    "mnemoscope.records.drawn": "mnemoscope.records.draw_sequences",
    "mnemoscope.cli.Options": "mnemoscope.cli.CommandOptions",
    "mnemoscope.cli.OfRuns": "mnemoscope.cli.RunOptions",
    "mnemoscope.cli.Jobs": "mnemoscope.cli.JobOptions",
    "mnemoscope.cli.WritesResults": "mnemoscope.cli.ResultOptions",
    "mnemoscope.cli.Shown": "mnemoscope.cli.Display",
    "mnemoscope.core.metrics.correct": "mnemoscope.core.metrics.is_correct",
    "mnemoscope.core.metrics.metrics_of": "mnemoscope.core.metrics.metrics_for",
    "mnemoscope.core.patterns.silent": "mnemoscope.core.patterns.unspecified_queries",
    "mnemoscope.core.patterns.common": "mnemoscope.core.patterns.common_mechanisms",
    "mnemoscope.core.patterns.for_slots": "mnemoscope.core.patterns.slot_mechanisms",
    "mnemoscope.report.findings.Largest": "mnemoscope.report.findings.LargestResult",
    "mnemoscope.report.findings.learned": "mnemoscope.report.findings.describe_learned_skills",
    "mnemoscope.report.findings.removal": "mnemoscope.report.findings.describe_removal",
    "mnemoscope.report.findings.trained": "mnemoscope.report.findings.describe_final_accuracy",
    "mnemoscope.report.findings.rises": "mnemoscope.report.findings.describe_rise",
    "mnemoscope.report.findings.grows": "mnemoscope.report.findings.describe_growth",
    "mnemoscope.report.plain_report.learned": "mnemoscope.report.plain_report.add_configuration_tables",
    "mnemoscope.judging": "mnemoscope.claims",
    "mnemoscope.report.rulings.Example": "mnemoscope.report.rulings.AttentionExample",
    "mnemoscope.report.rulings.in_short": "mnemoscope.report.rulings.shorten_rows",
    "mnemoscope.run.RecordedVerdict": "mnemoscope.claims.RecordedVerdict",
    "mnemoscope.run.recorded_verdicts": "mnemoscope.claims.recorded_verdicts",
    "mnemoscope.sweeps": "mnemoscope.run",
    **{
        f"mnemoscope.testing.{name}": f"mnemoscope.claims.testing.{name}"
        for name in (
            "Component",
            "Subject",
            "assert_dissociated",
            "assert_necessary",
            "assert_not_necessary",
            "assert_pattern",
            "assert_sufficient",
            "claim_effect",
            "head",
            "mlp",
        )
    },
    "mnemoscope.viz": "mnemoscope.report",
}
"""Old name to new name, both with their room."""


def public_names(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a room: the names in its stub, and the old ones in `OLD_NAMES`."""
    load, names, everything = lazy_loader.attach_stub(package, file)

    def load_or_redirect(name: str) -> Any:
        old = f"{package}.{name}"
        if old in OLD_NAMES:
            return resolve_old_name(old)
        if name in everything or name.startswith("_"):
            return load(name)
        raise AttributeError(f"{short_name(package)} has no name {name}{_where(package, name)}", name=name)

    return load_or_redirect, names, everything


@cache
def public_rooms() -> Mapping[str, tuple[str, ...]]:
    """Every public name, by its last part, with the rooms that have it, from the stubs."""
    root, found = Path(__file__).parents[1], {}
    for stub in sorted(root.rglob("__init__.pyi"), key=lambda path: len(path.parts)):
        room = ".".join(("mnemoscope", *stub.parent.relative_to(root).parts))
        for node in ast.parse(stub.read_text(encoding="utf-8")).body:
            for alias in node.names if isinstance(node, ast.ImportFrom) else ():
                found[alias.name] = (*found.get(alias.name, ()), room)
    return found


def _where(package: str, name: str) -> str:
    """The end of a message: where a name is public, else the public names that are nearest, else nothing."""
    rooms = public_rooms()
    if name in rooms:
        return f"; it is {short_name(rooms[name][0])}.{name}"
    nearest = get_close_matches(name, rooms, n=3)
    here = [near for near in nearest if package in rooms[near]] or nearest
    places = ", ".join(f"{short_name(rooms[near][0])}.{near}" for near in here)
    return f"; the nearest: {places}" if places else ""


def resolve_old_name(old: str, stacklevel: int = 3) -> Any:
    """The object that has an old name, with a FutureWarning that gives the new one."""
    new = OLD_NAMES[old]
    warnings.warn(
        f"{short_name(old)} is now {short_name(new)}; the old name goes in the next release", FutureWarning, stacklevel
    )
    room, _, name = new.rpartition(".")
    found = getattr(importlib.import_module(room), name, None)
    return importlib.import_module(new) if found is None else found


def old_names(module: str) -> Callable[[str], Any]:
    """`__getattr__` of a module that is public as a whole, for its old names."""

    def load(name: str) -> Any:
        if f"{module}.{name}" not in OLD_NAMES:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return resolve_old_name(f"{module}.{name}")

    return load


def old_room(package: str) -> Callable[[str], Any]:
    """`__getattr__` of a module that has the name of a room that was renamed."""

    def load(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(resolve_old_name(package, stacklevel=4), name)

    return load


def short_name(name: str) -> str:
    """A public name as users write it, such as `ms.report.Page`."""
    return "ms" if name == "mnemoscope" else name.replace("mnemoscope.", "ms.", 1)
