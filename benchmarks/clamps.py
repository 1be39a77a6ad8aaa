"""The cost of a clamp: training steps with clamps in force against the same steps without."""

from statistics import median

from mnemoscope.core.clamp import Clamp
from steps import OurSteps, published
from timing import Contender, Figure, duration, interleave, ratio

AIM = 1.3
CHUNK = 16
"""Steps of one portion."""
TWO_LAYERS = {
    "head removed": "L1H0=zero",
    "head removed, in its ramp": "L1H0=zero ramp 1000000",
    "pattern set": "L0H0 pattern=pattern previous token",
    "earlier stream copied": "L0 attn_out pos (1, 3)=patch L0 resid_pre pos (0, 2)",
}
"""Clamps by what they do."""
ONE_LAYER = {"head removed": "L0H0=zero", "MLP removed": "L0 MLP=zero"}
PRESETS = {"k-hop-2": TWO_LAYERS, "birth-2-layers": TWO_LAYERS, "v3": ONE_LAYER}


def steps(repetitions: int) -> list[Figure]:
    """Time of a training step with a clamp over that without, on one core."""
    figures = []
    for preset, clamps in PRESETS.items():
        contenders: dict[str, Contender] = {"free": OurSteps([published(preset, recipe="quick")], n_steps=CHUNK)}
        for name, text in clamps.items():
            changes = {"recipe.clamps": (Clamp.read(text),)}
            contenders[name] = OurSteps([published(preset, recipe="quick", changes=changes)], n_steps=CHUNK)
        seconds = interleave(contenders, repetitions)
        free = duration(median(seconds["free"]))
        for name in clamps:
            value, spread = ratio(seconds[name], seconds["free"])
            note = f"{duration(median(seconds[name]))} a step; without {free}"
            figures.append(
                Figure(
                    group="clamps",
                    name=f"{preset}: {name}",
                    value=value,
                    unit="x",
                    spread=spread,
                    aim=AIM,
                    at_most=True,
                    note=note,
                )
            )
    return figures
