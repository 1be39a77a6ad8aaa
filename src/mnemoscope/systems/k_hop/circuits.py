"""The known circuit of the model that doubles: it reads vectors, and answers after 1, 2 and 4 hops."""

from functools import partial

import mnemoscope as ms
from mnemoscope.systems.k_hop.constructed import doubling
from mnemoscope.systems.k_hop.tasks import KHop

TASK = KHop().for_seed(0)


def draw_pairs(n: int, seed: int) -> ms.PromptPairs:
    """Pairs that differ in one function on the path."""
    batch = TASK.sample(4 * n, split="test", generator=ms.generator(seed, "known circuit"))
    return ms.PromptPairs.from_task(TASK, batch, kind="exchange_on_path", seed=seed).select(slice(n))


ms.methods.plant_circuit(
    "hops-doubling",
    family="hops-doubling",
    source="L0H0 follows one hop; each later head looks up from where its query got, and copies what was reached.",
    make=partial(doubling, TASK),
    pairs=draw_pairs,
    edges=(
        "input → L0H0 v",
        *(f"L{layer - 1}H0 → L{layer}H0 {way}" for layer in (1, 2) for way in "qv"),
        *(f"L{layer}H0 → logits" for layer in range(3)),
    ),
)
