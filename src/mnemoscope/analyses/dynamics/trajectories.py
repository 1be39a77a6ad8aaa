"""An analysis over training steps and over runs.

A function of a model is mapped over the checkpoints of a run and becomes a result along `step`; a function of a run is
mapped over runs that differ in the seed only and becomes a result along `seed`.

Heads are aligned by role. Roles are chosen once per run, from its last checkpoint, so that a role names the same head
at every step: what the head of that role did before it was needed can be seen. The choice knows the end of training, so
a head of this role did not have to be recognisable early.

Checkpoints show a run only where they were kept. Between two of them anything may have happened.
"""

from collections.abc import Callable, Mapping, Sequence

import torch

from mnemoscope.analyses.ablation.head_roles import choose_roles, role_prompts
from mnemoscope.analyses.roles import Result, by_role
from mnemoscope.analyses.stacking import along, along_seed
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.progress import told
from mnemoscope.core.protocols import HookedModel
from mnemoscope.models.run import Run


def over_steps(
    run: Run,
    analyse: Callable[[HookedModel], Result],
    *,
    steps: Sequence[int] | None = None,
    name_heads: Callable[[Run], Mapping[str, str]] | None = None,
    device: torch.device | str = "cpu",
) -> Result:
    """An analysis of every checkpoint of a run, one model in memory at a time.

    `analyse` is any function of a model that returns a labelled result; use the same prompts for every step.
    `name_heads` is called once; its component-to-role mapping rearranges every result (`by_role`). `last_roles` is one;
    without it results stay over heads. Models go to `device`. Raises InputError where a checkpoint does not exist, or
    the results cannot be put together.

    Returns the results along `step`, ascending.
    """
    if not run.steps:
        raise InputError(f"{run.path} has no checkpoint yet; train it first")
    chosen = run.steps if steps is None else sorted(set(steps))
    if not chosen:
        raise InputError(f"steps must name at least one checkpoint of {run.path}; got none")
    for step in chosen:
        one_of(f"the step of {run.path}", step, run.steps)
    named = None if name_heads is None else name_heads(run)
    results = {}
    for step in told(chosen):
        result = analyse(run.hooked(step, device=device))
        results[step] = result if named is None else by_role(result, named)
    return along("step", results)


def last_roles(run: Run, *, skill: str | None = None, n: int = 2048, split: str = "test") -> dict[str, str]:
    """Roles of a run's components by its last checkpoint, on the selection half of the prompts.

    The `skill` is as in `choose_roles`; `n` sequences of each subgroup of the `split` are drawn, and as many for the
    reference set. The prompts are those that `ablate_by_role` chooses by under the run's seed. Raises InputError where
    there is no checkpoint, or the task has no such skill.
    """
    task, seed = run.spec.task, run.spec.seed
    selection, _, reference = role_prompts(task, n=n, split=split, seed=seed)
    return choose_roles(run.hooked(), selection, skills=task.skills(selection), reference=reference, skill=skill)


def over_runs(runs: Sequence[Run], analyse: Callable[[Run], Result]) -> Result:
    """An analysis of runs that differ in the seed only, one run at a time.

    For several processes: `along_seed(runs, analyse_many(runs, analyse, jobs=...))` with `run.executor.analyse_many`;
    `analyse` is then a function of a module.

    The runs are of one configuration, every seed once; results lie along `seed`, in the order of the runs. `analyse`
    may call `over_steps`, `Run.metrics` or an analysis of `run.model()`. Raises InputError where the runs are of
    several configurations, or the results cannot be put together.
    """
    return along_seed(runs, map(analyse, runs))
