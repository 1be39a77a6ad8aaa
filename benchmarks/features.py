"""Patching every feature of one layer against a plain loop of one hooked forward pass a feature."""

from collections.abc import Iterator
from statistics import median
from typing import Any

import torch
from torch import Tensor

from mnemoscope.analyses.patching import patch
from mnemoscope.core.dictionary import Dictionary
from mnemoscope.core.metrics import LOGIT_DIFF, at_target
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.seeding import generator
from mnemoscope.models.building import from_configuration
from mnemoscope.models.dictionaries import with_dictionaries
from mnemoscope.models.lens import HookedTransformer
from patching import CONFIG, random_pairs
from timing import Contender, Figure, duration, interleave, ratio

N_LAYERS, LAYER, N_PROMPTS = 4, 1, 64
N_FEATURES, N_ACTIVE = 1000, 32
N_RIVAL = 10
"""Features that the loop runs in one portion; the time is taken a feature."""
AIM = 10.0


def model() -> HookedTransformer:
    """An untrained model of a few layers."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return from_configuration({**CONFIG, "n_layers": N_LAYERS}).eval()


def dictionary(width: int) -> Dictionary:
    """A transcoder with random directions, of whose features so many are active at a position."""
    stream = generator(0, "benchmark")
    w_enc = torch.randn(N_FEATURES, width, generator=stream) / width**0.5
    w_dec = torch.randn(N_FEATURES, width, generator=stream) / width**0.5
    return Dictionary(
        name="random", layer=LAYER, reads="mlp_in", writes="mlp_out", w_enc=w_enc, b_enc=torch.zeros(N_FEATURES),
        w_dec=w_dec, b_dec=torch.zeros(width), activation="topk", k=N_ACTIVE,
    )  # fmt: skip


class Rival:
    """One hooked pass a feature: a hook adds the feature's difference times its direction to the MLP's output.

    Features of both runs are at hand. With `resumed` the pass starts at the layer, from the stream that is at hand too.
    """

    def __init__(self, model: HookedTransformer, pairs: PromptPairs, given: Dictionary, *, resumed: bool):
        self.model, self.pairs, self.given, self.resumed = model, pairs, given, resumed
        self.moved, self.stream = torch.empty(0), torch.empty(0)
        self.result = torch.zeros(N_FEATURES, N_PROMPTS)
        features = []
        with torch.no_grad():
            for side in (pairs.corrupted, pairs.clean):
                names = [f"blocks.{LAYER}.hook_{kind}" for kind in ("resid_pre", "resid_mid")]
                _, cache = model.run_with_cache(side.inputs, names_filter=names)
                features.append(given.encode(model.blocks[LAYER].ln2(cache[names[1]])))
                self.stream = cache[names[0]]
        self.moved = features[0] - features[1]
        self.numbers = self._numbers()

    def _numbers(self) -> Iterator[int]:
        while True:
            yield from range(N_FEATURES)

    @torch.no_grad()
    def __call__(self) -> float:
        answer, foil = self.pairs.answer[:, -1], self.pairs.foil[:, -1]
        for _ in range(N_RIVAL):
            number = next(self.numbers)
            added = self.moved[..., number, None] * self.given.w_dec[number]

            def add(written: Tensor, hook: Any, added: Tensor = added) -> Tensor:
                return written + added

            inputs, how = (self.stream, {"start_at_layer": LAYER}) if self.resumed else (self.pairs.clean.inputs, {})
            logits = self.model.run_with_hooks(inputs, fwd_hooks=[(f"blocks.{LAYER}.hook_mlp_out", add)], **how)
            self.result[number] = at_target(logits[:, -1], answer) - at_target(logits[:, -1], foil)
        return float(N_RIVAL)


class Ours:
    """`patch` at the features, its two recorded runs included."""

    def __init__(self, model: HookedTransformer, pairs: PromptPairs, given: Dictionary):
        self.model, self.pairs, self.result = with_dictionaries(model, [given]), pairs, torch.empty(0)

    def __call__(self) -> float:
        over, directions = ("layer", "neuron"), ("noising",)
        found = patch(self.model, self.pairs, kind="feature", over=over, metrics=[LOGIT_DIFF], directions=directions)
        self.result = torch.from_numpy(found.value.values[0, 0, 0])
        return float(N_FEATURES)


def sweeps(quick: bool) -> list[Figure]:
    """All features of one layer at all positions, one metric, noising."""
    subject, pairs = model(), random_pairs(N_PROMPTS)
    given, figures = dictionary(subject.cfg.d_model), []
    rivals = {resumed: Rival(subject, pairs, given, resumed=resumed) for resumed in (False, True)}
    ours = Ours(subject, pairs, given)
    contenders: dict[str, Contender] = {"loop": rivals[False], "resumed loop": rivals[True], "ours": ours}
    seconds = interleave(contenders, 1 if quick else 3)
    for name, aim in (("loop", AIM), ("resumed loop", None)):
        value, spread = ratio(seconds[name], seconds["ours"])
        figures.append(
            Figure(
                group="features",
                name=f"{N_FEATURES} features of layer {LAYER} of {N_LAYERS}, {N_PROMPTS} prompts, {name}",
                value=value,
                unit="x",
                spread=spread,
                aim=aim,
                note=f"a feature: ours {duration(median(seconds['ours']))}, {duration(median(seconds[name]))}",
            )
        )
    done = rivals[False].result.abs().amax(1) > 0
    largest = float((rivals[False].result.double() - ours.result)[done].abs().max())
    figures.append(Figure(group="features", name="difference", value=largest, unit="", aim=1e-5, at_most=True))
    return figures
