"""Independence of the runs of one configuration: each seed has to be a training of its own, from weights of its own.

The checks are cheap. A run has to end with the step that its recipe says, and with the weights that it wrote down. Its
initial weights have to follow from its seed. Trained weights still resemble those that they started from: the cosine
with the initial weights of their seed lies far outside of the cosines with those of other seeds. No two runs may hold
equal weights or be near each other (`models.likeness`). Near by their functions alone are also seeds that solve a task
exactly: two runs that descend from their own initial weights are not refused for that.

*Does not show* the course of training between; a replay of the first steps is in `run.verification`. Where seeds share
their initial weights neither the resemblance nor the distance says anything, and such runs stay unverified.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import Task
from mnemoscope.core.specification import RunSpec
from mnemoscope.core.task import SEED
from mnemoscope.models.building import build_untrained, detached_parameters
from mnemoscope.models.checkpoint import digest, weights_digest
from mnemoscope.models.files import read_progress
from mnemoscope.models.likeness import DIFFERENT, DISTANT, distances, portrait
from mnemoscope.models.run import COMPACT, Run, machine

FIRST_OTHER_SEED = 2_000_000
"""Seeds of initial weights that trained ones are compared with start here, where no run's are."""
N_OTHERS = 16
"""Other seeds with which resemblance is compared."""
N_DEVIATIONS = 5.0
"""Standard deviations of the cosines with other seeds from which weights resemble initial ones."""
ALL_WEIGHTS = "initial weights"
"""The shared part that leaves seeds only their draws of data."""
CLOSE = 1e-5
"""Difference of initial weights between kinds of machines."""


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """The findings of the cheap checks on one run.

    `checked` says what was compared and agrees, `missing` what could not be compared, `problem` why the run is refused;
    empty: it is not. `resembles` is True if the trained weights resemble the initial weights of the run's seed, None
    where that says nothing.
    """

    run: Run
    problem: str = ""
    checked: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    recorded: bool = False
    """True if the digest of the final weights was written down, and is theirs."""
    resembles: bool | None = None

    @property
    def verified(self) -> bool:
        """True if the final weights are those that were written down, and descend from the seed's initial ones."""
        return not self.problem and self.recorded and bool(self.resembles)


def check_replicates(runs: Iterable[Run]) -> list[Inspection]:
    """The cheap checks of runs; raises InputError where one is not what it says, or two are one."""
    found = inspect_runs(list(runs))
    for inspection in found:
        if inspection.problem:
            raise InputError(inspection.problem)
    return found


def inspect_runs(runs: Sequence[Run]) -> list[Inspection]:
    """The cheap checks of finished runs of one configuration, in their order."""
    found = [_inspect_alone(run) for run in runs]
    sound = [place for place, each in enumerate(found) if not each.problem]
    together = _inspect_together([found[place] for place in sound])
    return [together[sound.index(place)] if place in sound else each for place, each in enumerate(found)]


def _inspect_together(found: list[Inspection]) -> list[Inspection]:
    """The checks of sound runs that compare them with each other, and with initial weights of other seeds."""
    trained = [detached_parameters(each.run.hooked()) for each in found]
    shapes = [{name: value.shape for name, value in params.items()} for params in trained]
    of_spec = [_shapes(each.run.spec) == each_shapes for each, each_shapes in zip(found, shapes, strict=True)]
    foreign = "its weights are of another architecture than its specification, and are compared with nothing"
    found = [
        each if known else replace(each, missing=(*each.missing, foreign))
        for each, known in zip(found, of_spec, strict=True)
    ]
    digests = [weights_digest(each.run.checkpoint_path(each.run.last_step))[1] for each in found]
    for i, j in combinations(range(len(found)), 2):
        if digests[i] == digests[j]:
            found[i], found[j] = _refuse_copy(found[i], found[j], "the same weights")
    places = [place for place, known in enumerate(of_spec) if known]
    compared = _compare([found[place] for place in places], [trained[place] for place in places]) if places else []
    return [compared[places.index(place)] if place in places else each for place, each in enumerate(found)]


def _shapes(spec: RunSpec) -> dict[str, torch.Size]:
    """The shapes of the parameters of a specification."""
    return {name: value.shape for name, value in build_untrained(spec, own=True).named_parameters()}


def _compare(found: list[Inspection], trained: Sequence[Mapping[str, Tensor]]) -> list[Inspection]:
    """Compare runs of one architecture with each other, and with the initial weights of their seeds."""
    runs = [each.run for each in found]
    own, others = _cosines(runs, trained)
    if own is None:
        unknown = "all seeds have the same initial weights, which say nothing about the seed"
        return [replace(each, missing=(*each.missing, unknown)) for each in found]
    portraits = [portrait(params, run.spec) for params, run in zip(trained, runs, strict=True)]
    apart = distances(portraits)
    descends = [_descends(own[place], others, place) for place in range(len(runs))]
    for (i, j), each in apart.items():
        # Seeds that solve a task exactly may compute nearly the same function; a copy lacks the weights of its seed.
        if each.near and not (each.weights >= DISTANT and descends[i] and descends[j]):
            measured = f"{each.weights:.2g} apart by weights, {each.function:.2g} by function"
            how = f"nearly the same weights ({measured}; other seeds: {DISTANT:g}, {DIFFERENT:g} or more)"
            found[i], found[j] = _refuse_copy(found[i], found[j], how)
    found = [_compare_seeds(each, place, own, others, runs) for place, each in enumerate(found)]
    if not apart:
        return found
    nearest = min(each.weights for each in apart.values())
    return [_checked(each, f"no two runs are nearer than {nearest:.2f} (copies: below {DISTANT:g})") for each in found]


def _refuse_copy(one: Inspection, other: Inspection, how: str) -> tuple[Inspection, Inspection]:
    """Two runs that are one, refused where they were not before."""
    runs = (one.run, other.run)
    seeds = " and ".join(str(run.spec.seed) for run in runs)
    problem = (
        f"{runs[0].path} and {runs[1].path}, seeds {seeds} of {runs[0].spec.preset}, hold {how}: "
        "a copy is no replicate; hand in one of them"
    )
    first, second = (each if each.problem else replace(each, problem=problem) for each in (one, other))
    return first, second


def _cosines(
    runs: Sequence[Run], trained: Sequence[Mapping[str, Tensor]]
) -> tuple[Float[Tensor, "run seed"] | None, Float[Tensor, "run other"]]:
    """The cosines of trained weights with the initial ones of all runs, and of other seeds; None where all are equal.

    The mean over other seeds, which is no seed's own, is taken out of all weights.
    """
    spec = runs[0].spec
    seeds = range(FIRST_OTHER_SEED, FIRST_OTHER_SEED + N_OTHERS)
    others = torch.stack([_initial(replace(spec, seed=seed)) for seed in seeds])
    if others.equal(others[:1].expand_as(others)):
        return None, torch.zeros(len(runs), N_OTHERS)
    common = others.mean(0)
    own = torch.stack([_initial(run.spec) for run in runs]) - common
    others = others - common
    ended = torch.stack([_flat(params) for params in trained]).nan_to_num() - common
    return _cosine(ended, own), _cosine(ended, others)


def _cosine(one: Float[Tensor, "run weight"], other: Float[Tensor, "seed weight"]) -> Float[Tensor, "run seed"]:
    tiny = torch.finfo(one.dtype).tiny
    return (one / one.norm(dim=1, keepdim=True).clamp(min=tiny)) @ (
        other / other.norm(dim=1, keepdim=True).clamp(min=tiny)
    ).T


def _initial(spec: RunSpec) -> Float[Tensor, " weight"]:
    """The initial weight matrices of a specification in one row."""
    return _flat(detached_parameters(build_untrained(spec, own=True)))


def _flat(params: Mapping[str, Tensor]) -> Float[Tensor, " weight"]:
    return torch.cat([value.flatten().float() for value in params.values() if value.ndim > 1])


def _deviations(own: Float[Tensor, " seed"], others: Float[Tensor, "run other"]) -> Float[Tensor, " seed"]:
    """The cosines of one run with the runs' initial weights, in standard deviations of those with other seeds.

    Chance cosines depend on the shapes of the weights only, which all runs share: one run's own `N_OTHERS` would leave
    the deviation uncertain by 18%.
    """
    return (own - others.mean()) / others.std()


def _descends(own: Float[Tensor, " seed"], others: Float[Tensor, "run other"], place: int) -> bool:
    """True if a run resembles the initial weights of its seed, and of no other run's seed more."""
    deviations = _deviations(own, others)
    return int(deviations.argmax()) == place and bool(deviations[place] > N_DEVIATIONS)


def _compare_seeds(
    inspection: Inspection,
    place: int,
    own: Float[Tensor, "run seed"],
    others: Float[Tensor, "run other"],
    runs: Sequence[Run],
) -> Inspection:
    """Compare one run with the initial weights of its seed, of the other runs' seeds and of other seeds."""
    deviations = _deviations(own[place], others)
    best = int(deviations.argmax())
    run = inspection.run
    if not inspection.problem and best != place and deviations[best] > N_DEVIATIONS:
        source = runs[best]
        problem = (
            f"{run.path} does not descend from the initial weights of its seed {run.spec.seed} but from those of seed "
            f"{source.spec.seed} (cosines {own[place, place]:.2f} and {own[place, best]:.2f}): a copy is no replicate; "
            f"hand in {source.path} only"
        )
        return replace(inspection, problem=problem)
    cosine = f"cosine {own[place, place]:.2f}, with those of other seeds up to {others[place].max():.2f}"
    if deviations[place] > N_DEVIATIONS:
        return replace(
            _checked(inspection, f"the final weights descend from the initial ones of the seed ({cosine})"),
            resembles=True,
        )
    unknown = f"the final weights do not resemble the initial weights of the seed ({cosine})"
    return replace(inspection, missing=(*inspection.missing, unknown), resembles=False)


def shared_parts(runs: Sequence[Run]) -> tuple[str, ...]:
    """The parts that runs of one configuration have in common since their seeds do not change them; none for one run.

    `initial weights`, or single matrices such as `initial W_Q`, are equal bit for bit; parts of the task, such as
    `facts`, have a seed of their own that is the same for all runs.
    """
    if len(runs) < 2:
        return ()
    first, second = (
        {name: value for name, value in build_untrained(run.spec, own=True).named_parameters() if value.ndim > 1}
        for run in runs[:2]
    )
    drawn = [name for name, value in first.items() if value.any()]
    equal = [name for name in drawn if first[name].equal(second[name])]
    weights = [ALL_WEIGHTS] if equal == drawn else [f"initial {name.split('.')[-1]}" for name in equal]
    tasks = [run.spec.task for run in runs]
    seeds = [name for name in (f.name for f in fields(tasks[0])) if name.endswith(SEED)]  # type: ignore[arg-type]
    same = [name for name in seeds if len({getattr(task, name) for task in tasks}) == 1]
    fixed = [name.removesuffix(SEED) for name in same if _is_fixed(tasks[0], name)]
    return tuple(dict.fromkeys([*weights, *fixed]))


def _is_fixed(task: Task, seed: str) -> bool:
    """True if the part of a task that has such a seed is there: the seed is set, or a field says what the part is."""
    return getattr(task, seed) is not None or hasattr(task, seed.removesuffix(SEED))


def shared_sentence(parts: Sequence[str]) -> str:
    """A sentence on the parts that seeds share, for the page of a verdict; empty if there are none."""
    if not parts:
        return ""
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    only = "; they differ in their draws of data, and the claim is about these only" if ALL_WEIGHTS in parts else ""
    return f"all seeds share the {listed}{only}"


def _checked(inspection: Inspection, *what: str) -> Inspection:
    return replace(inspection, checked=(*inspection.checked, *what))


def _inspect_alone(run: Run) -> Inspection:
    """The checks that need one run only."""
    try:
        recorded = _check_end(run)
        inspection = Inspection(run=run, checked=("it ended where its recipe says",), recorded=recorded)
        if recorded:
            inspection = _checked(inspection, "the final weights are those written down")
        else:
            inspection = replace(inspection, missing=("no digest of the final weights was written down",))
        return _check_start(inspection)
    except InputError as error:
        return Inspection(run=run, problem=str(error))


def _check_end(run: Run) -> bool:
    """Refuse a run that ended early or with other weights than it wrote down; True if it wrote them down."""
    last = run.last_step
    path = run.checkpoint_path(last)
    if run.steps[-1:] != (last,):
        found = f"of step {run.steps[-1]}" if run.steps else "missing"
        raise InputError(f"{run.path} is marked as finished, but its last checkpoint is {found}, not of step {last}")
    if problem := _why_too_early(run):
        raise InputError(f"{run.path} is marked as finished with step {last}, {problem}; train the run again")
    step, weights = weights_digest(path)
    if step != last:
        raise InputError(f"{path} is a checkpoint of step {step} under the name of step {last}; train the run again")
    compact = path.name.endswith(COMPACT)
    expected = {run.origin.get("final_weights"), None if compact else run.final_weights} - {None}
    if expected - {weights}:
        raise InputError(f"{path} does not hold the weights that training ended with, by run.json; train the run again")
    return bool(expected)


def _why_too_early(run: Run) -> str:
    """Why training cannot have ended where the run says; empty: it can."""
    recipe, last = run.spec.recipe, run.last_step
    log = run.path / "metrics.jsonl"
    line = read_progress(log, finished=True)[-1] if log.exists() else None
    if line is not None and line["step"] != last:
        return f"but its metrics end with step {line['step']}"
    if last == recipe.n_steps:
        return ""
    if recipe.stop_at is None:
        return f"but its recipe has {recipe.n_steps} and no early stopping"
    if line is None:
        return "of early stopping, but it has no metrics that say so"
    skills = [value for name, value in line.items() if name.startswith("test_") and "_loss" not in name]
    if min(skills, default=0) < recipe.stop_at:
        return f"before its skills reached {recipe.stop_at:g}, where early stopping ends"
    return ""


def _check_start(inspection: Inspection) -> Inspection:
    """Compare the digest of the initial weights, and a checkpoint of step 0, with those that follow from the seed."""
    run, expected = inspection.run, build_untrained(inspection.run.spec, own=True).state_dict()
    kept = {}
    if 0 in run.steps and run.last_step and not run.checkpoint_path(0).name.endswith(COMPACT):
        kept = run.hooked(0).state_dict()
    if kept and all(kept[name].shape == value.shape for name, value in expected.items() if name in kept):
        numbers = [name for name, value in expected.items() if value.is_floating_point() and name in kept]
        apart = max(float((kept[name] - expected[name]).abs().max()) for name in numbers)
        if apart > CLOSE:
            raise InputError(
                f"{run.checkpoint_path(0)} does not hold the initial weights of seed {run.spec.seed}: they differ by "
                f"up to {apart:.2g}; train the run again"
            )
        inspection = _checked(inspection, "the checkpoint of step 0 follows from the seed")
    written = run.origin.get("initial_weights")
    if written is None:
        return replace(inspection, missing=(*inspection.missing, "no digest of the initial weights was written down"))
    if written == digest(expected, {}):
        return _checked(inspection, "the digest of the initial weights follows from the seed")
    if (there := run.origin.get("machine", "")) == machine():
        raise InputError(
            f"{run.path / 'run.json'} names other initial weights than seed {run.spec.seed} gives, by their digest; "
            "train the run again"
        )
    unknown = f"the digest of the initial weights is from another kind of machine ({there or 'unknown'})"
    return replace(inspection, missing=(*inspection.missing, unknown))
