"""Many seeds: worker processes against one, one program against many, and the memory of a run."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median

import torch

from mnemoscope.core.presets import PRESETS
from mnemoscope.core.specification import RunSpec
from mnemoscope.training.loop import train
from steps import OurSteps, published
from timing import Figure, duration, interleave, ratio

N_SEEDS = 16
QUICK_STEPS = PRESETS.get("v3").recipes["quick"].n_steps

_MEMORY = """
import resource, sys, tempfile
from pathlib import Path
from mnemoscope.core.presets import preset
from mnemoscope.training.loop import train
with tempfile.TemporaryDirectory() as folder:
    train(preset("v3", "quick", 0, changes={"recipe.n_steps": int(sys.argv[1])}), Path(folder) / "run")
unit = 1 if sys.platform == "darwin" else 1024
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
"""


def processes(repetitions: int, n_steps: int) -> list[Figure]:
    """The command `train` for 16 seeds of v3 on two cores against one, start-up included."""

    def seconds(jobs: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            where = ["--preset", "v3", "--seeds", f"0-{N_SEEDS - 1}", "--jobs", str(jobs), "--out", folder]
            command = [sys.executable, "-m", "mnemoscope.cli", "train", *where, "--set", f"recipe.n_steps={n_steps}"]
            start = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            return time.perf_counter() - start

    load = os.getloadavg()[0]
    busy = f"; other work on the machine (load {load:.1f}) makes this too low" if load > 1.5 else ""
    turns = [(seconds(1), seconds(2)) for _ in range(repetitions)]
    one, two = (list(times) for times in zip(*turns, strict=True))
    value, spread = ratio(one, two)
    figure = Figure(
        group=f"{N_SEEDS} seeds",
        name=f"the command `train`, {n_steps} steps, two processes against one",
        value=value,
        unit="x",
        spread=spread if repetitions > 1 else None,
        aim=1.8,
        note=f"wall clock, start-up included: one {duration(median(one))}, two {duration(median(two))}{busy}",
    )
    return [figure, _by_processor_time(figure.group, 6, min(n_steps, 300))]


def _by_processor_time(group: str, repetitions: int, n_steps: int) -> Figure:
    """The gain of two processes with two cores to themselves: other work does not count as their time."""
    here, there = [], []
    with ProcessPoolExecutor(2, multiprocessing.get_context("forkserver")) as pool:
        for _ in range(repetitions):
            here.append(processor_time(n_steps))
            there.append(sum(pool.map(processor_time, [n_steps] * 2)) / 2)
    value, spread = ratio([2 * seconds for seconds in here], there)
    note = f"processor time of a run: alone {duration(median(here))}, beside another {duration(median(there))}"
    return Figure(group=group, name="two processes, by processor time", value=value, unit="x", spread=spread, note=note)


def processor_time(n_steps: int) -> float:
    """Seconds of processor time that one short run takes in this process, on one thread."""
    torch.set_num_threads(1)
    changes = {"recipe.warmup_steps": 0, "recipe.n_steps": n_steps}
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        train(published("v3", 0, "quick", changes), Path(folder) / "run")
        return time.process_time() - start


def memory(n_steps: int) -> list[Figure]:
    """Peak resident memory of training v3 in a fresh process."""
    # The shell between is for Linux, where a process inherits the peak of the process that it was forked from.
    command = ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", _MEMORY, str(n_steps)]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    value = int(result.stdout.split()[-1]) / 1e9
    return [
        Figure(
            group="memory",
            name="v3, peak of a fresh process",
            value=value,
            unit="GB",
            aim=1.5,
            at_most=True,
            note=f"{n_steps} steps, imports included",
        )
    ]


def together(repetitions: int, device: str, n_seeds: int, n_steps: int) -> list[Figure]:
    """Seeds as one program (`vmap`) against one at a time, as training steps x seeds a second."""
    group, name = "one program", f"{n_seeds} seeds of v3 on the {'CPU' if device == 'cpu' else 'GPU'}"
    if device != "cpu" and not torch.cuda.is_available():
        return [Figure(group=group, name=name, value=None, unit="x", note="no GPU here")]
    specs = [published("v3", seed) for seed in range(n_seeds)]
    contenders = {"one": OurSteps(specs[:1], device), "all": OurSteps(specs, device, n_steps)}
    clock = time.process_time if device == "cpu" else time.perf_counter
    seconds = interleave(contenders, repetitions, clock)
    value, spread = ratio(seconds["one"], seconds["all"])
    rates = {key: 1 / median(values) for key, values in seconds.items()}
    note = f"{rates['all']:.0f} steps x seeds a second; one at a time {rates['one']:.0f}"
    return [Figure(group=group, name=name, value=value, unit="x", spread=spread, note=note)]


def same_parameters(device: str, n_seeds: int, n_steps: int = 100) -> list[Figure]:
    """Largest difference of parameters between seeds trained together and one at a time, in float64."""
    name = f"{n_seeds} seeds together or apart on the {'CPU' if device == 'cpu' else 'GPU'}, float64"
    if device != "cpu" and not torch.cuda.is_available():
        return [Figure(group="same parameters", name=name, value=None, unit="", note="no GPU here")]
    specs = [published("v3", seed, changes={"model.dtype": "float64"}) for seed in range(n_seeds)]
    stacked = _trained(specs, device, n_steps)
    largest = 0.0
    for index, spec in enumerate(specs):
        alone = _trained([spec], device, n_steps).learner.parameters(0)
        for key, value in stacked.learner.parameters(index).items():
            largest = max(largest, float((value - alone[key]).abs().max()))
    return [
        Figure(
            group="same parameters",
            name=name,
            value=largest,
            unit="",
            aim=1e-9,
            at_most=True,
            note=f"after {n_steps} steps",
        )
    ]


def _trained(specs: list[RunSpec], device: str, n_steps: int) -> OurSteps:
    steps = OurSteps(specs, device, n_steps)
    steps()
    return steps
