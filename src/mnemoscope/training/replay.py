"""The first steps of a run, trained again and compared with what the run kept of them.

Compared are checkpoints and lines of metrics up to that step, and the last line with the last checkpoint. Together with
a training that is a function of the seed they tie the log to the seed and the weights to the log. On the machine of the
training the bits are equal. Elsewhere sums are rounded otherwise, so losses and weights may differ by `TOLERANCE`.
Key biases are left out: they change no attention, so that Adam moves them by rounding alone.

*Does not show* the steps between the last one replayed and the last one of training.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mnemoscope.core.errors import in_range
from mnemoscope.core.seeding import fixed_defaults
from mnemoscope.core.specification import RunSpec
from mnemoscope.models.building import build_untrained, detached_parameters, held_patterns, matching_names
from mnemoscope.models.files import read_progress
from mnemoscope.models.run import COMPACT, Run
from mnemoscope.training.learner import Learner
from mnemoscope.training.loop import update
from mnemoscope.training.monitors import Line, Monitors
from mnemoscope.training.schedule import TrainingBatches

TOLERANCE = 1e-5
"""Difference of losses and weights between kinds of machines, up to step `EARLY`; the losses of the nearest pair of
shipped seeds differ by 3e-5 at step 0."""
EARLY = 10
"""Step up to which rounding has not grown yet; by step 20 that of full batches has, to 5e-5."""
GROWN = 1e-3
"""The same difference after more steps, where the nearest pair differs by .0013, in one configuration by 5e-4."""
HALF = 5e-3
"""Difference of losses that half precision makes: about .002 at most in the archives."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """The comparison of a run with its first steps, trained again.

    `early` is the largest difference of losses and weights up to step `EARLY`, `late` that of losses and weights behind
    it, and `end` that of the losses of the last line, measured anew on the last checkpoint; NaN where there was nothing
    to compare with. `compared` are the steps by kind.
    """

    run: Run
    n_steps: int
    compared: Mapping[str, tuple[int, ...]]
    early: float
    late: float
    end: float
    end_tolerance: float

    @property
    def exact(self) -> bool:
        """True if the first steps have the same bits."""
        return self.difference == 0

    @property
    def difference(self) -> float:
        """The largest difference of losses and weights along the way."""
        return max(self.early, 0.0 if math.isnan(self.late) else self.late)

    @property
    def agrees(self) -> bool:
        """True if everything that could be compared agrees; False if nothing could, or no last line was logged."""
        return self.early <= TOLERANCE and self.difference <= GROWN and self.end <= self.end_tolerance

    def __str__(self) -> str:
        found = [f"{kind} of steps {', '.join(map(str, steps))}" for kind, steps in self.compared.items() if steps]
        if not found:
            return "no metrics and no checkpoint to compare a replay with"
        how = "bit for bit" if self.exact else f"to {self.difference:.1g}"
        end = "as" if self.end == 0 else f"{self.end:.1g} from those"
        return f"{self.n_steps} steps replayed: {' and '.join(found)} {how}; losses of the last checkpoint {end} logged"


@fixed_defaults()
def replay(run: Run, n_steps: int = 20) -> Replay:
    """Train the first `n_steps` steps of a run again, and on to the first line of metrics behind step 0.

    Nothing is written. Raises InputError where files of the run are damaged.
    """
    in_range("n_steps of a replay", n_steps, 0, run.last_step)
    logged = _logged(run)
    n_steps = max(n_steps, min((step for step in logged if step), default=0))
    kept = {step for step in run.steps if step <= n_steps and not run.checkpoint_path(step).name.endswith(COMPACT)}
    monitors, apart = Monitors([run.spec]), {}
    compared: dict[str, list[int]] = {"metrics": [], "weights": []}
    for step, learner in _first_steps(run.spec, n_steps, monitors):
        if step in logged:
            compared["metrics"].append(step)
            apart[step] = _losses_apart(logged[step], monitors.lines(learner, [0], step)[0])
        if step in kept:
            compared["weights"].append(step)
            saved = run.hooked(step).state_dict()
            trained = learner.parameters(0).items()
            moved = [float((saved[name] - value).abs().max()) for name, value in trained if not name.endswith(".b_K")]
            apart[step] = max(apart.get(step, 0.0), *moved)
    last = run.steps[-1] if run.steps else -1
    end, tolerance = float("nan"), TOLERANCE
    if last in logged:
        learner = Learner(run.spec.model, run.spec.recipe, [detached_parameters(run.hooked(last))], [{}])
        end = _losses_apart(logged[last], monitors.lines(learner, [0], last)[0])
        tolerance = HALF if run.checkpoint_path(last).name.endswith(COMPACT) else TOLERANCE
    return Replay(
        run=run,
        n_steps=n_steps,
        compared={kind: tuple(steps) for kind, steps in compared.items()},
        early=max((value for step, value in apart.items() if step <= EARLY), default=math.nan),
        late=max((value for step, value in apart.items() if step > EARLY), default=math.nan),
        end=end,
        end_tolerance=tolerance,
    )


def _logged(run: Run) -> dict[int, Line]:
    """The lines of a run's metrics by step; none where nothing was logged."""
    log = run.path / "metrics.jsonl"
    lines = read_progress(log, finished=run.finished) if log.exists() else []
    return {int(line["step"]): line for line in lines}


def _losses_apart(one: Line, other: Line) -> float:
    """The largest difference of losses that both lines have, relative to the loss where that is above one."""
    pairs = [(one[name], other[name]) for name in one if "_loss" in name and name in other]
    apart = [abs(a - b) / max(1.0, abs(a)) for a, b in pairs if not (math.isnan(a) and math.isnan(b))]
    return float("inf") if any(map(math.isnan, apart)) else max(apart, default=0.0)


def _first_steps(spec: RunSpec, n_steps: int, monitors: Monitors) -> Iterator[tuple[int, Learner]]:
    """The learner after every step up to `n_steps`, from step 0."""
    learner = Learner(spec.model, spec.recipe, [detached_parameters(build_untrained(spec, own=True))], [{}])
    data, held = TrainingBatches([spec]), matching_names(held_patterns(spec.model), learner.names)
    yield 0, learner
    for step in range(n_steps):
        update(learner, data, spec, step, monitors.positions, held)
        yield step + 1, learner
