"""The test whether runs are replicates: each a separate training, ended, with the weights that it ended with.

A claim counts seeds. A run that was copied under another seed, whose last checkpoint was deleted or exchanged, or that
holds the checkpoint of another step is none. *Does not show* that weights were not changed on purpose.
"""

from collections.abc import Iterable

from mnemoscope.core.errors import InputError
from mnemoscope.models.checkpoint import weights_digest
from mnemoscope.models.run import COMPACT, Run


def check_replicates(runs: Iterable[Run]) -> None:
    """Refuse finished runs of one configuration with other weights than the run says, or with equal weights."""
    seen: dict[str, Run] = {}
    for run in runs:
        weights = _weights(run)
        first = seen.setdefault(weights, run)
        if first is not run:
            raise InputError(
                f"{first.path} and {run.path}, seeds {first.spec.seed} and {run.spec.seed} of {run.spec.preset}, hold "
                "the same weights: a copy is no replicate; hand in one of them"
            )


def _weights(run: Run) -> str:
    """The digest of a run's last checkpoint, if it is the one that training ended with."""
    last = run.last_step
    path = run.checkpoint_path(last)
    if run.steps[-1:] != (last,):
        found = f"of step {run.steps[-1]}" if run.steps else "missing"
        raise InputError(f"{run.path} is marked as finished, but its last checkpoint is {found}, not of step {last}")
    step, weights = weights_digest(path)
    if step != last:
        raise InputError(f"{path} is a checkpoint of step {step} under the name of step {last}; train the run again")
    if run.final_weights not in (None, weights) and not path.name.endswith(COMPACT):
        raise InputError(f"{path} does not hold the weights that training ended with, by run.json; train the run again")
    return weights
