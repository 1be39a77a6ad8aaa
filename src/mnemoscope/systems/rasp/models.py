"""The compiled programs as models, and variants in which zero weights do not give the circuit away."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope import ModelSpec, generator
from mnemoscope.core import one_of
from mnemoscope.models import HookedTransformer, build
from mnemoscope.systems.rasp.programs import PROGRAMS
from mnemoscope.systems.rasp.tasks import Rasp

NOISE = tuple(1e-3 * 2.0**-i for i in range(12))
"""Standard deviations of noise: a program gets the first under which it stays right. Weights are 0, 1, or up to some
hundreds, and some programs need attention to be shared equally, which bears little.
"""
N_HEADS, N_NEURONS, N_DIMENSIONS = 2, 16, 16
"""Idle heads and neurons that a padded model has in every layer, and the dimensions that these write to."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CompiledProgram:
    """A program as Tracr compiled it, or a variant of that.

    Attributes:
        name: The name of the program.
        text: The program in RASP.
        edges: The circuit: edges on which what differs between sequences flows to the answer.
        constants: Further edges on which the answer depends by weights; what they carry is the same for all sequences.
        places: The part or the parts that compute each s-op, by its name.
        directions: Names of the dimensions of the residual stream, as Tracr wrote it.
        weights: By TransformerLens's names; biases are zero.
        inputs: Some sequences.
        outputs: The outputs of Tracr's own model on them.
        decoded: The classes that Tracr reads from these, without BOS.
    """

    name: str
    text: str
    edges: frozenset[str]
    constants: frozenset[str]
    places: Mapping[str, tuple[str, ...]]
    directions: tuple[str, ...]
    weights: Mapping[str, Tensor]
    inputs: Int[Tensor, "batch pos"]
    outputs: Float[Tensor, "batch pos d_vocab_out"]
    decoded: Int[Tensor, "batch place"]

    @property
    def task(self) -> Rasp:
        """The task of the program."""
        return Rasp(program=self.name)

    def model(self) -> HookedTransformer:
        """The model with these weights: no normalisation, no biases, and MLPs of ReLU."""
        query, inward = self.weights["blocks.0.attn.W_Q"], self.weights["blocks.0.mlp.W_in"]
        spec = ModelSpec(
            d_model=query.shape[1],
            n_heads=query.shape[0],
            d_head=query.shape[2],
            d_mlp=inward.shape[1],
            n_layers=sum(name.endswith("W_in") for name in self.weights),
            normalization="none",
            attention_dir="causal" if self.task.definition.causal else "bidirectional",
        )
        sizes: dict[str, Any] = {"d_vocab": self.task.d_vocab, "n_ctx": self.task.n_ctx}
        model = build(spec, **sizes, d_vocab_out=len(self.task.classes), seed=0, own=True).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(self.weights[name] if name in self.weights else torch.zeros_like(parameter))
        return model


@lru_cache
def compiled(program: str) -> CompiledProgram:
    """The program of that name, from its file."""
    one_of("program", program, tuple(PROGRAMS))
    with np.load(Path(__file__).parent / "compiled" / f"{program}.npz", allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    about: dict[str, Any] = json.loads(str(arrays.pop("about")))
    return CompiledProgram(
        name=program,
        text=about["text"],
        edges=frozenset(about["edges"]),
        constants=frozenset(about["constants"]),
        places={sop: tuple(parts) for sop, parts in about["places"].items()},
        directions=tuple(about["directions"]),
        inputs=torch.from_numpy(arrays.pop("inputs")),
        outputs=torch.from_numpy(arrays.pop("outputs")),
        decoded=torch.from_numpy(arrays.pop("decoded")),
        weights={name: torch.from_numpy(array) for name, array in arrays.items()},
    )


def _normal(shape: tuple[int, ...], draws: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=draws, dtype=torch.float32)


def noised(program: CompiledProgram, *, seed: int = 0) -> CompiledProgram:
    """The program with normal noise on every weight, as much of `NOISE` as leaves all answers right.

    Every edge then carries a little.
    """
    draws = generator(seed, "noise")
    noise = {name: _normal(tuple(weight.shape), draws) for name, weight in program.weights.items()}
    every = program.task.enumerate(split="test")
    for size in NOISE:
        found = replace(program, weights={name: each + size * noise[name] for name, each in program.weights.items()})
        with torch.no_grad():
            given = found.model()(every.inputs).argmax(-1)
        if (given == every.targets)[every.scored].all():
            return found
    raise AssertionError(f"{program.name} bears no noise of {NOISE[-1]}")


_READING = ("W_Q", "W_K", "W_V", "W_in", "W_U")
"""Weights from the residual stream, whose last axis but one it is; of the others it is the last."""


def rotated(program: CompiledProgram, *, seed: int = 0) -> CompiledProgram:
    """The program in another orthonormal basis of the residual stream: the same outputs, and hardly a zero weight."""
    width = len(program.weights["unembed.W_U"])
    basis = torch.linalg.qr(_normal((width, width), generator(seed, "basis")).double())[0].float()
    changed = {
        name: basis.T @ weight if name.endswith(_READING) else weight @ basis
        for name, weight in program.weights.items()
    }
    return replace(program, weights=changed)


def padded(program: CompiledProgram, *, seed: int = 0) -> CompiledProgram:
    """The program with idle heads and neurons in every layer, in random order among those that work.

    Idle parts have random weights. They read everything, and write to dimensions of their own, as the embeddings do,
    which idle parts alone read: no edge that they bring along is in the circuit, and outputs stay.
    """
    draws, changed, orders = generator(seed, "padding"), {}, {}
    width = len(program.weights["unembed.W_U"])
    for name, weight in program.weights.items():
        grown = _with_idle(name, weight, width, draws)
        layer = name.split(".")[1]
        if grown.ndim == 3:
            if layer not in orders:
                orders[layer] = torch.randperm(len(grown), generator=draws)
            grown = grown[orders[layer]]
        changed[name] = grown
    moved = [(layer, *pair) for layer, order in orders.items() for pair in enumerate(order.tolist())]
    heads = {f"L{layer}H{old}": f"L{layer}H{new}" for layer, new, old in moved}

    def renamed(text: str) -> str:
        return re.sub(r"L\d+H\d+", lambda found: heads[found[0]], text)

    return replace(
        program,
        weights=changed,
        edges=frozenset(map(renamed, program.edges)),
        constants=frozenset(map(renamed, program.constants)),
        places={sop: tuple(map(renamed, parts)) for sop, parts in program.places.items()},
    )


def _with_idle(name: str, weight: Tensor, width: int, draws: torch.Generator) -> Tensor:
    """A weight with room for idle parts and their dimensions, which follow those that work."""
    reads, sizes = name.endswith(_READING), list(weight.shape)
    stream = weight.ndim - (2 if reads else 1)
    works = [slice(0, size) for size in sizes]
    sizes[stream] += N_DIMENSIONS
    if weight.ndim == 3:
        sizes[0] += N_HEADS
    elif ".mlp." in name:
        sizes[1 - stream] += N_NEURONS
    grown = _normal(tuple(sizes), draws)
    if name not in ("embed.W_E", "pos_embed.W_pos"):
        grown /= sizes[-2] ** 0.5
    if reads:
        grown[tuple(slice(width, None) if axis == stream else each for axis, each in enumerate(works))] = 0
    else:
        grown[..., :width] = 0
    grown[tuple(works)] = weight
    return grown


Variant = Callable[..., CompiledProgram]
VARIANTS: Mapping[str, Variant] = {"noised": noised, "rotated": rotated, "padded": padded}
"""The variants of every program, by name."""
