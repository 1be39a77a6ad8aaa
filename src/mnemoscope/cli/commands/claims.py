"""`mnemoscope claims list`, `claims show`, `claims run` and `claims diff`; `dev register` and `dev check` of claims."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, UseAppendAction

import mnemoscope as ms
from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import ClaimOptions, Claims, CommandOptions, RegisteredNames, ResultOptions, RunPaths
from mnemoscope.cli.parse import default_system
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.guests import invited_sources


@dataclass(frozen=True, kw_only=True)
class ClaimsList(CommandOptions):
    """The claims that can be put on trial, with their verdicts on the models of the zoo, and their rivals."""

    what: Positional[Claims] = ()
    """Systems or ids of claims; none: all."""


def claims_list(options: ClaimsList) -> None:
    """Print every claim on a line, with its system, its verdict on record and its rivals."""
    from mnemoscope.claims.recorded import NOT_TRIED, recorded_verdicts
    from mnemoscope.cli.catalogue import claim_entries
    from mnemoscope.cli.output import show

    verdicts = recorded_verdicts()
    rows = [
        [
            id + ", headline" * claim["headline"],
            claim["system"],
            claim["statement"],
            str(verdicts.get(id, NOT_TRIED)),
            ", ".join(claim["rivals"]),
        ]
        for id, claim in claim_entries(options.what).items()
    ]
    show("claims", ("id", "system", "statement", "verdict", "rivals"), rows, n_text=5)


@dataclass(frozen=True, kw_only=True)
class ClaimsShow(CommandOptions):
    """All that is fixed about claims before they are tried (criteria, gate, models, controls), and their verdicts."""

    what: Positional[Claims]
    """Systems or ids of claims; `claims list` shows them."""


def claims_show(options: ClaimsShow) -> None:
    """Print a table per claim: what is fixed, and the verdict on record."""
    from mnemoscope.claims.recorded import NOT_TRIED, recorded_verdicts
    from mnemoscope.cli.catalogue import claim_entries
    from mnemoscope.cli.output import show

    verdicts = recorded_verdicts()
    for id, claim in claim_entries(options.what).items():
        verdict = verdicts[id].in_full if id in verdicts else NOT_TRIED
        rows = [*claim["fixed"], ["verdict on record", verdict]]
        show(f"{id}: {claim['statement']}", ("what", "fixed beforehand"), rows, n_text=2)


@dataclass(frozen=True, kw_only=True)
class ClaimsRegister(CommandOptions):
    """Write down what is fixed about claims, before the first run: `registered.json` beside them, to be committed."""

    what: Positional[Claims]
    """Systems or ids of claims."""
    supersede: str | None = None
    """Why registrations that differ are replaced; they are kept under `superseded`."""
    verdicts: Path | None = None
    """verdicts.json of the earlier trial, or its directory: superseded registrations keep their verdicts from it, those
    that were superseded before and have none too."""


def claims_register(options: ClaimsRegister) -> None:
    """Write the registrations of every package that the claims belong to."""
    from mnemoscope.claims.registration import FILE, package_of, register, superseded_forms
    from mnemoscope.cli.output import console
    from mnemoscope.cli.trials import claims_named

    claims = claims_named(options.what)
    verdicts = () if options.verdicts is None else read_verdicts(options.verdicts)
    for claim in claims:
        if package_of(claim) is None:
            raise InputError(f"claim {claim.id} belongs to no package, where {FILE} could lie")
    for package in dict.fromkeys(map(package_of, claims)):
        assert package is not None
        of_package = [claim for claim in claims if package_of(claim) == package]
        changed = register(of_package, package, reason=options.supersede, verdicts=verdicts)
        console.print(f"{package / FILE}: {', '.join(changed) or 'nothing new'}", highlight=False)
        without = [c.id for c in of_package if any(earlier.outcome is None for earlier in superseded_forms(c))]
        if without:
            console.print(
                f"superseded without a verdict: {', '.join(without)}; add it with --verdicts", highlight=False
            )


@dataclass(frozen=True, kw_only=True)
class ClaimsCheck(CommandOptions):
    """Measure the controls of claims anew, and compare them and all that is fixed with what is registered."""

    what: Positional[Claims]
    """Systems or ids of claims."""
    jobs: int = 0
    """Worker processes, of one thread each; 0: one per core."""


def claims_check(options: ClaimsCheck) -> None:
    """Print how each claim compares with its registration; raises InputError where a claim is registered otherwise."""
    from mnemoscope.claims.registration import check_registration, measure_controls
    from mnemoscope.claims.replicates import expected_seeds
    from mnemoscope.cli.output import console, show
    from mnemoscope.cli.trials import claims_named
    from mnemoscope.report.rulings.words import registered_notes, registered_word

    claims = claims_named(options.what)
    with console.status("the controls are measured"):
        values = measure_controls(claims, jobs=options.jobs)
    standings = {claim.id: check_registration(claim, expected_seeds(claim), values, anew=True) for claim in claims}
    rows = [
        [id, registered_word(each.departures), "not compared" if each.off is None else f"{each.off:.1g}"]
        for id, each in standings.items()
    ]
    show("beside the registrations", ("id", "registered", "largest difference of values"), rows, n_text=2)
    for note in registered_notes((id, each.departures, each.code) for id, each in standings.items()):
        console.print(note, highlight=False, markup=False)
    if otherwise := [id for id, each in standings.items() if each.departures]:
        raise InputError(
            f"not as registered: {', '.join(otherwise)}; where other numbers are meant, raise the claim's version and "
            "register it with --supersede"
        )


@dataclass(frozen=True, kw_only=True)
class ClaimsRun(ClaimOptions, ResultOptions):
    """Put claims on trial over trained or language models: a verdict each, with controls and rivals; resumes."""

    runs: RunPaths = ()
    """Run directories, directories that hold some, or words such as `zoo:<configuration>`."""
    zoo: bool = False
    """Take the installed trained runs too."""
    model: UseAppendAction[tuple[str, ...]] = ()
    """Language model for claims about these: smollm2 (packaged), a directory, a GGUF file, a name on the hub; may be
    repeated, and then the models are the replicates, not the questions."""
    device: str = "cpu"
    """Device of the language models."""
    dtype: str = "float32"
    """Precision of the weights of language models."""
    recipe: Annotated[str | None, RegisteredNames("recipes")] = None
    """Ask of models of this recipe in place of the claims' own; `list presets` shows the recipes."""
    original: UseAppendAction[tuple[Path, ...]] = ()
    """Published model, a safetensors file with its configuration in the metadata: shown beside the judged seeds, with
    its rank; no verdict rests on it. May be repeated."""
    sensitivity: bool = True
    """Ask again with one factor changed at a time."""
    emergence: bool = True
    """Follow the effects of the first seed that has checkpoints over its training."""
    multiverse: bool = False
    """Judge each claim under up to 200 combinations of its choices: margin, gate, quantifier, prompts, and all that it
    names, such as ablation kind, metric and recipe."""
    jobs: int = 0
    """Worker processes, of one thread each; 0: one per core."""
    out: Path = Path("verdicts")
    """Directory for verdicts.json, report.html, the evidence, what was measured so far, and index.html."""
    store: Path | None = None
    """Directory of what was measured, which several commands and users may share; none: OUT/measured."""


def claims_run(options: ClaimsRun) -> None:
    """Measure, judge, print and write."""
    from mnemoscope.claims.variants import with_recipe
    from mnemoscope.cli.commands.index import refresh
    from mnemoscope.cli.output import console
    from mnemoscope.cli.refusals import check_out
    from mnemoscope.cli.trials import claims_for_zoo, claims_named, claims_without_runs, try_claims
    from mnemoscope.core.presets import recipes
    from mnemoscope.models.zoo import WORD, labels

    what = options.what or default_system()[:1]
    claims = claims_named(what)
    if options.recipe is not None:
        one_of("--recipe", options.recipe, recipes())
        claims = [claim for claim in claims if with_recipe(claim, options.recipe)]
        if not claims:
            raise InputError(f"{' '.join(what)} says nothing of the {options.recipe} recipe; leave out --recipe")
    if not options.model and (of := [claim.id for claim in claims if claim.of_language_models]):
        raise InputError(
            f"{', '.join(of)} {'is' if len(of) == 1 else 'are'} about language models: name one with --model, such as "
            "--model smollm2, the packaged one"
        )
    if options.model and not any(claim.of_language_models for claim in claims):
        raise InputError(f"none of the claims {' '.join(what)} is about language models; leave out --model")
    if options.store is not None:
        check_out(options.store, is_file=False, option="--store")
    paths = [*options.runs, *(Path(f"{WORD}:{label}") for label in (labels() if options.zoo else ()))]
    if not paths and any(claim.units for claim in claims):
        raise InputError("claims run needs models: --zoo takes the installed ones, --runs DIR your own")
    runs = ms.find_runs(paths, without_checkpoint=True) if paths else []
    if not options.runs:
        claims, sentences = claims_for_zoo(claims, runs)
        if not claims:
            raise InputError("; ".join(sentences))
        for sentence in sentences:
            console.print(sentence, highlight=False, markup=False)
    for sentence in claims_without_runs(claims, runs):
        console.print(sentence, highlight=False, markup=False)
    try_claims(
        claims,
        runs,
        options.out,
        title="verdicts",
        options=options,
        where=_where(options),
        models=options.model,
        device=options.device,
        dtype=options.dtype,
        recipe=options.recipe,
        originals=options.original,
        sensitivity=options.sensitivity,
        emergence=options.emergence,
        multiverse=options.multiverse,
        jobs=options.jobs,
        store=options.store,
    )
    refresh(options.out)


def _where(options: ClaimsRun) -> list[str]:
    """The words of the command line that say what is measured."""
    words = [word for source in invited_sources() for word in ("--import", source)]
    words += ["--runs", *map(str, options.runs)] if options.runs else []
    words += ["--zoo"] * options.zoo + [word for model in options.model for word in ("--model", model)]
    words += ["--multiverse"] * options.multiverse
    words += [word for file in options.original for word in ("--original", str(file))]
    return words + (["--recipe", options.recipe] if options.recipe else [])


def read_verdicts(path: Path) -> list[dict[str, Any]]:
    """The verdicts that `try_claims` has written, by its file or directory."""
    file = path / "verdicts.json" if path.is_dir() else path
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{file} does not exist; `mnemoscope claims run` writes one") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} holds no verdicts: {error}") from None
    if not isinstance(content, list) or not all(isinstance(entry, dict) and "outcome" in entry for entry in content):
        raise InputError(f"{file} holds no verdicts; `mnemoscope claims run` writes such a file")
    return content


@dataclass(frozen=True, kw_only=True)
class ClaimsDiff(CommandOptions):
    """Compare two trials (verdicts, shares, effects, rivals, sensitivity tables), or two registries (verdicts, claims).

    Claims that were tried in both are compared; the others are counted. Of registries, claims that came or went are
    listed too.
    """

    old: Positional[Path]
    """verdicts.json, or the directory that holds it; or a directory of entries."""
    new: Positional[Path]
    """The same of the later trial, or the later registry."""


def claims_diff(options: ClaimsDiff) -> None:
    """Print the differences among the claims that are in both files; raises InputError where no claim is in both."""
    from mnemoscope.cli.output import console, show
    from mnemoscope.core.errors import pluralise
    from mnemoscope.report.rulings.differences import DIFF_HEADER, diff_rows

    if options.old.is_dir() and not (options.old / "verdicts.json").exists():
        _registries_diff(options)
        return
    old, new = read_verdicts(options.old), read_verdicts(options.new)
    before, after = ({record["id"] for record in records} for records in (old, new))
    if not before & after:
        raise InputError(f"{options.old} and {options.new} have no claim in common, so that nothing can be compared")
    for place, only in ((options.old, before - after), (options.new, after - before)):
        if only:
            console.print(f"left out: {pluralise(len(only), 'claim')} in {place} only", highlight=False)
    rows = diff_rows(old, new)
    if rows:
        show(f"{options.old} → {options.new}", DIFF_HEADER, rows, n_text=5)
    else:
        console.print(
            f"the two agree in every verdict, share and effect of {pluralise(len(before & after), 'claim')}",
            highlight=False,
        )


def _registries_diff(options: ClaimsDiff) -> None:
    """Print the claims that came, went or have another verdict or version."""
    from mnemoscope.cli.output import console, show
    from mnemoscope.core.errors import pluralise
    from mnemoscope.registry.changes import CHANGES_HEADER, registry_changes
    from mnemoscope.registry.reading import read_registry

    old, new = read_registry([options.old]), read_registry([options.new])
    if rows := registry_changes(old, new):
        show(f"{options.old} → {options.new}", CHANGES_HEADER, rows, n_text=4)
    else:
        console.print(f"the two agree in every verdict of {pluralise(len(new), 'claim')}", highlight=False)


_command = partial(Command, section="test a claim")
_dev_command = partial(Command, section="for maintainers")
COMMANDS.add("claims diff", _command(options=ClaimsDiff, run=claims_diff))
COMMANDS.add("claims list", _command(options=ClaimsList, run=claims_list))
COMMANDS.add("claims run", _command(options=ClaimsRun, run=claims_run))
COMMANDS.add("claims show", _command(options=ClaimsShow, run=claims_show))
COMMANDS.add("dev check", _dev_command(options=ClaimsCheck, run=claims_check, earlier={"claims check": {}}))
COMMANDS.add("dev register", _dev_command(options=ClaimsRegister, run=claims_register, earlier={"claims register": {}}))
