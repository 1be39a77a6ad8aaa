"""The known circuit of the model that doubles: it reads vectors, and answers after 1, 2 and 4 hops."""

import mnemoscope as ms
from mnemoscope.systems.k_hop.constructed import doubling
from mnemoscope.systems.k_hop.tasks import KHop

NAME = "hops-doubling"
TASK = KHop().for_seed(0)


def draw_pairs(n: int, seed: int) -> ms.PromptPairs:
    """Pairs that differ in one function on the path."""
    batch = TASK.sample(4 * n, split="test", generator=ms.generator(seed, "known circuit"))
    return ms.PromptPairs.from_task(TASK, batch, kind="exchange_on_path", seed=seed).select(slice(n))


def doubling_circuit() -> ms.methods.KnownCircuit:
    """Every layer composes what the one before has reached with itself, through queries and values."""
    composed = (f"L{layer - 1}H0 → L{layer}H0 {way}" for layer in (1, 2) for way in "qv")
    answers = (f"L{layer}H0 → logits" for layer in range(3))
    return ms.methods.KnownCircuit(
        name=NAME,
        family=NAME,
        source="L0H0 follows one hop; each later head looks up from where its query got, and copies what was reached.",
        model=doubling(TASK),
        pairs=draw_pairs,
        edges=frozenset(("input → L0H0 v", *composed, *answers)),
    )


ms.methods.KNOWN_CIRCUITS.add(NAME, doubling_circuit)
