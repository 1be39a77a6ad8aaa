"""The compiled programs and their variants as known circuits."""

from functools import partial

from mnemoscope import PromptPairs, generator
from mnemoscope.core import one_of
from mnemoscope.methods import KNOWN_CIRCUITS, KnownCircuit, NoisedCircuit
from mnemoscope.systems.rasp.models import VARIANTS, compiled
from mnemoscope.systems.rasp.programs import PROGRAMS
from mnemoscope.systems.rasp.tasks import Rasp


def pairs(task: Rasp, n: int, seed: int) -> PromptPairs:
    """`n` sequences and others, read where their answers differ.

    With one token replaced some edges would carry nothing: where answers stay defined, the place that the induction
    head attends to stays too.
    """
    clean = task.sample(n, split="test", generator=generator(seed, "known circuits", task.program))
    found = PromptPairs.from_task(task, clean, kind="redraw", seed=seed)
    return found.read_at(found.scored & (found.answer != found.foil))


def known_circuit(program: str, variant: str | None = None, *, seed: int = 0) -> KnownCircuit:
    """The known circuit of a program, or of one of its `VARIANTS`, which the seed draws.

    Raises InputError where there is no such program or variant.
    """
    found = compiled(program)
    if variant is not None:
        one_of("variant", variant, tuple(VARIANTS))
        found = VARIANTS[variant](found, seed=seed)
    return KnownCircuit(
        name=f"rasp-{program}" + (f"-{variant}" if variant else ""),
        family=f"rasp-{program}",
        source=found.text,
        model=found.model(),
        pairs=partial(pairs, found.task),
        edges=found.edges,
    )


for _program in PROGRAMS:
    KNOWN_CIRCUITS.add(f"rasp-{_program}", partial(known_circuit, _program))
    for _variant in VARIANTS:
        KNOWN_CIRCUITS.add(
            f"rasp-{_program}-{_variant}", NoisedCircuit(build=partial(known_circuit, _program, _variant))
        )
