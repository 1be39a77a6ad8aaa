"""The origin of a run: digests of its initial weights and of its first batches, which both follow from the seed.

Training writes them into run.json at its first step, from what it really starts with; `expected_origin` computes them
from the specification again. Bits of the initial weights need the same kind of machine.
"""

from collections.abc import Mapping, Sequence

from torch import Tensor

from mnemoscope.core.specification import RunSpec
from mnemoscope.models.building import build_untrained
from mnemoscope.models.checkpoint import digest
from mnemoscope.models.run import machine
from mnemoscope.training.schedule import Examples, TrainingBatches

N_BATCHES = 3
"""First batches that count."""


def weights_of(spec: RunSpec) -> dict[str, Tensor]:
    """The weights that a run starts from, with the buffers of a checkpoint."""
    return build_untrained(spec, own=True).state_dict()


def batches_digest(batches: Sequence[Examples], run: int) -> str:
    """SHA-256 of the batches of one run."""
    parts = {f"{i}/{name}": getattr(each, name)[run] for i, each in enumerate(batches) for name in Examples._fields}
    return digest(parts, {})


def origins(
    specs: Sequence[RunSpec], initial: Sequence[Mapping[str, Tensor]], data: TrainingBatches
) -> list[dict[str, str]]:
    """The origin of each run, from the weights that it starts from and the batches that it is trained on."""
    recipe = specs[0].recipe
    batches = [data.batch(step) for step in range(min(N_BATCHES, recipe.n_steps))]
    device = batches[0].inputs.device.type
    return [
        {
            "initial_weights": digest(weights, {}),
            "first_batches": batches_digest(batches, run),
            "device": device,
            "machine": machine(),
        }
        for run, weights in enumerate(initial)
    ]


def expected_origin(spec: RunSpec) -> dict[str, str]:
    """The origin that a run has by its specification, trained on a CPU."""
    return origins([spec], [weights_of(spec)], TrainingBatches([spec]))[0]
