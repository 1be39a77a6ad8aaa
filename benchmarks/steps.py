"""Training steps, sampling and the forward pass on one core, against plainer ways to do the same."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import torch

import source_loop
from mnemoscope.core.batch import Batch
from mnemoscope.core.presets import preset
from mnemoscope.core.seeding import generator
from mnemoscope.core.specification import RunSpec
from mnemoscope.engine.architecture import transformer_from_spec
from mnemoscope.engine.block import OutputPlaces
from mnemoscope.models.building import build_untrained, detached_parameters, matching_names, zero_patterns
from mnemoscope.models.lens import HookedTransformer
from mnemoscope.training.learner import Learner
from mnemoscope.training.loop import train
from mnemoscope.training.schedule import TrainingBatches, frozen_names, learning_rate
from timing import Contender, Figure, duration, interleave, ratio

SIZES = ("v3", "v1")
CHUNK = 64
"""Steps of one portion: as many as a block of samples lasts."""
BLOCK = 2**14
"""Sequences sampled at once in training."""


def published(
    name: str, seed: int = 0, recipe: str = "published", changes: Mapping[str, object] | None = None
) -> RunSpec:
    """A run of a preset, with changes such as {"model.dtype": "float64"}."""
    return preset(name, recipe, seed, changes=changes)


def fresh(spec: RunSpec, device: str = "cpu") -> HookedTransformer:
    """The untrained hooked model of a run."""
    return build_untrained(spec, device=device)


class OurSteps:
    """The steps of `training/loop.py` without its files; several runs train as one program."""

    def __init__(self, specs: Sequence[RunSpec], device: str = "cpu", n_steps: int = CHUNK):
        self.specs, self.device, self.n_steps, self.step = specs, device, n_steps, 0
        self.model, self.recipe = specs[0].model, specs[0].recipe
        initial = [detached_parameters(fresh(spec, device)) for spec in specs]
        self.learner = Learner(self.model, self.recipe, initial, [{} for _ in specs])
        self.data = TrainingBatches(specs, device)
        self.positions = self.data.batch(0).scored[0].any(0).nonzero()[:, 0]

    def __call__(self) -> float:
        off = matching_names(zero_patterns(self.model), self.learner.names)
        for step in range(self.step, self.step + self.n_steps):
            self.learner.hold(off | frozen_names(self.recipe, self.learner.names, step))
            losses = self.learner.losses(
                self.specs[0].task.loss, self.data.batch(step), self.positions, self.data.held(step)
            )
            self.learner.update(losses, learning_rate=learning_rate(self.recipe, step))
        self.step += self.n_steps
        if self.device != "cpu":
            torch.cuda.synchronize()
        return self.n_steps * len(self.specs)


def hooked_steps(spec: RunSpec) -> Contender:
    """Plain forward and backward of a `HookedTransformer` with Adam on the same data."""
    model, data = fresh(spec), TrainingBatches([spec])
    adam = torch.optim.Adam(model.parameters(), lr=spec.recipe.learning_rate)

    def work() -> float:
        for step in range(CHUNK):
            inputs, targets, scored = (part[0] for part in data.batch(step))
            loss = spec.task.loss(model(inputs), Batch(inputs=inputs, targets=targets, scored=scored))
            adam.zero_grad()
            loss.backward()
            adam.step()
        return CHUNK

    return work


def source_steps(spec: RunSpec) -> Contender:
    """The source's loop at the size and on the mixture of a run."""
    size = {"d_model": spec.model.d_model, "n_heads": spec.model.n_heads}
    repeats = spec.task.repeat_ratio  # pyright: ignore[reportAttributeAccessIssue]

    def work() -> float:
        source_loop.train(CHUNK, **size, repeat_ratio=repeats, batch_size=spec.recipe.batch_size)
        return CHUNK

    return work


def whole_training(spec: RunSpec) -> Contender:
    """`train` with its checkpoints, metrics and state, set-up included."""

    def work() -> float:
        with tempfile.TemporaryDirectory() as folder:
            train(spec, Path(folder) / "run")
        return spec.recipe.n_steps

    return work


def training(repetitions: int) -> list[Figure]:
    """Training steps a second on one core."""
    figures = []
    for name in SIZES:
        spec = published(name)
        short = published(name, recipe="quick", changes={"recipe.n_steps": 8 * CHUNK})
        contenders: dict[str, Contender] = {
            "source": source_steps(spec),
            "hooked": hooked_steps(spec),
            "ours": OurSteps([spec]),
            "train": whole_training(short),
        }
        seconds = interleave(contenders, repetitions)
        typical = {key: median(values) for key, values in seconds.items()}
        ours = f"ours {duration(typical['ours'])} a step, {1 / typical['ours']:.0f} steps/s"
        for rival, against, aim in (
            ("source", "source's loop", 3.0),
            ("hooked", "HookedTransformer + Adam, same data", None),
        ):
            value, spread = ratio(seconds[rival], seconds["ours"])
            note = f"{ours}; rival {duration(typical[rival])}" + ("; 4x wanted" if aim else "")
            figures.append(
                Figure(
                    group="training step",
                    name=f"{name} against {against}",
                    value=value,
                    unit="x",
                    spread=spread,
                    aim=aim,
                    note=note,
                )
            )
        value, spread = ratio(seconds["source"], seconds["train"])
        note = f"{short.recipe.n_steps} steps with metrics, checkpoints and set-up: {duration(typical['train'])} a step"
        name = f"{name}, whole `train`, against source's loop"
        figures.append(Figure(group="training step", name=name, value=value, unit="x", spread=spread, note=note))
    return figures


def sampling(repetitions: int) -> list[Figure]:
    """Sequences sampled a second on one core, v3's mixture."""
    spec = published("v3")
    stream, batch_size = generator(0, "benchmark"), spec.recipe.batch_size
    rival = source_loop.loader(16 * batch_size, batch_size=batch_size)

    def one_by_one() -> float:
        return sum(len(inputs) for inputs, _, _ in rival)

    def block() -> float:
        return sum(len(spec.task.sample(BLOCK, split="train", generator=stream)) for _ in range(8))

    def batches() -> float:
        data = TrainingBatches([spec])
        return sum(data.batch(step).inputs.shape[1] for step in range(8 * BLOCK // batch_size))

    seconds = interleave({"source": one_by_one, "block": block, "batches": batches}, repetitions)
    figures = []
    for key, name in (("block", f"PermutationLookup.sample({BLOCK})"), ("batches", "Blocks.batch, as in training")):
        value, spread = ratio(seconds["source"], seconds[key])
        note = f"{duration(median(seconds[key]))} a sequence; rival {duration(median(seconds['source']))}"
        figures.append(Figure(group="sampling", name=name, value=value, unit="x", spread=spread, aim=50.0, note=note))
    return figures


@torch.no_grad()
def equality() -> list[Figure]:
    """Largest difference of logits between the training forward pass and the hooked model, in float32."""
    figures = []
    for name in SIZES:
        spec, largest = published(name), 0.0
        for seed in range(5):
            model, noise = fresh(published(name, seed)), generator(seed, "noise")
            for parameter in model.parameters():  # biases start at zero: move everything
                parameter += 0.1 * torch.randn(parameter.shape, generator=noise)
            batch = spec.task.sample(4096, split="train", generator=noise)
            positions = batch.scored.any(0).nonzero()[:, 0]
            ours = transformer_from_spec(detached_parameters(model), spec.model)(
                batch.inputs, OutputPlaces(columns=positions)
            )
            largest = max(largest, float((ours - model(batch.inputs)[:, positions]).abs().max()))
        note = "5 models with random parameters, 4,096 sequences each"
        figures.append(
            Figure(
                group="same logits",
                name=f"{name} and HookedTransformer",
                value=largest,
                unit="",
                aim=1e-5,
                at_most=True,
                note=note,
            )
        )
    return figures
