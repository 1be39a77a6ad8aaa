"""Edge attribution of a language model of SmolLM2's shape, all edges, against its authors' method, written anew.

The rival keeps an input of its own for every head and MLP (TransformerLens's split inputs) and takes the gradient there
in one backward pass a point. It multiplies the gradient with the difference of every earlier part's output between the
runs, as EAP-IG's package does (Hanna, Pezzelle & Belinkov 2024). Heads that share keys and values are taken apart, as
the package needs it. Its scores of the heads of a group add up to ours of their key/value head.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch
import xarray as xr

from language import N_POS, N_PROMPTS, SHAPES, shaped
from mnemoscope.analyses.estimates import approximation, attribute_edges, integrate_edges
from mnemoscope.analyses.patching import patch_edges
from mnemoscope.core.metrics import LOGIT_DIFF, at_target
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.seeding import generator
from mnemoscope.interventions.graph import model_edges
from mnemoscope.models.lens import HookedTransformer
from patching import random_pairs
from timing import Contender, Figure, duration, interleave, ratio

STEPS = 5
"""Number of points of EAP-IG."""
N_SAMPLED = 100
"""Number of edges that are patched, to measure the errors of the estimates."""


def sweeps(quick: bool) -> list[Figure]:
    """EAP and EAP-IG against the rival, and the distance of both from patches of sampled edges."""
    name = "SmolLM2 135M"
    model = shaped(SHAPES[name][1], quick)
    pairs = random_pairs(N_PROMPTS, n_pos=N_POS, d_vocab=model.cfg.d_vocab)
    figures = []
    for method, steps in (("EAP", 0), ("EAP-IG", STEPS)):
        rival, ours = Rival(model, pairs, steps), Ours(model, pairs, steps)
        contenders: dict[str, Contender] = {"rival": rival, "ours": ours}
        seconds = interleave(contenders, 1 if quick else 3)
        value, spread = ratio(seconds["rival"], seconds["ours"])
        times = ", ".join(f"{who} {duration(median(seconds[who]))}" for who in ("ours", "rival"))
        note = f"{times}; difference {_difference(model, ours.scores, rival.scores):.0e} of the largest"
        title = f"{name}: {method}, {len(ours.scores)} edges, {N_PROMPTS} prompts"
        figures.append(Figure(group="attribution", name=title, value=value, unit="x", spread=spread, aim=1, note=note))
        figures.append(_error(f"{name}: {method}, correlation with patches of {N_SAMPLED} sampled edges", ours))
    return figures


def _difference(model: HookedTransformer, ours: xr.DataArray, rival: dict[str, float]) -> float:
    """The largest difference between the scores of an edge, as a share of the largest score."""
    n = model.cfg.n_heads // (model.cfg.n_key_value_heads or model.cfg.n_heads)
    theirs = np.zeros(len(ours))
    for number, edge in enumerate(model_edges(model)):
        writer, reader = str(edge).split(" → ")
        if "KV" in reader:
            place, way = reader.split()
            layer, group = place.split("KV")
            heads = [f"{layer}H{n * int(group) + i} {way}" for i in range(n)]
            theirs[number] = sum(rival[f"{writer} → {head}"] for head in heads)
        else:
            theirs[number] = rival[f"{writer} → {reader}"]
    return float(abs(ours.values - theirs).max() / abs(theirs).max())


def _error(name: str, ours: "Ours") -> Figure:
    edges = model_edges(ours.model)
    chosen = torch.randperm(len(edges), generator=generator(0, "edges"))[:N_SAMPLED].sort().values.tolist()
    exact = patch_edges(
        ours.model, ours.pairs, chosen=[edges[i] for i in chosen], metrics=[LOGIT_DIFF], directions=("noising",)
    )
    estimate = ours.result.sel(edge=exact.edge).drop_vars("unexplained", errors="ignore")
    figures = approximation(estimate, exact).squeeze()
    value, note = float(figures.pearson), f"slope {float(figures.slope):.2f}, random weights"
    return Figure(group="attribution", name=name, value=value, unit="", note=note)


class Ours:
    """The estimate of every edge, its two runs included."""

    def __init__(self, model: HookedTransformer, pairs: PromptPairs, steps: int):
        self.model, self.pairs = model, pairs
        self.estimate: Callable[..., xr.Dataset] = partial(integrate_edges, steps=steps) if steps else attribute_edges

    def __call__(self) -> float:
        self.result = self.estimate(self.model, self.pairs, metrics=[LOGIT_DIFF], directions=("noising",))
        return 1.0

    @property
    def scores(self) -> xr.DataArray:
        return (self.result.value - self.result.clean)[0, 0].mean("prompt")


class Rival:
    """Scores of every edge by name, from split inputs."""

    def __init__(self, model: HookedTransformer, pairs: PromptPairs, steps: int):
        self.model, self.pairs, self.steps, cfg = model.requires_grad_(False), pairs, steps, model.cfg
        self.writers = ["input"]
        self.before: dict[int | None, int] = {}
        """By layer, the first of its heads; by None, all."""
        for layer in range(cfg.n_layers):
            self.before[layer] = len(self.writers)
            self.writers += [f"L{layer}H{head}" for head in range(cfg.n_heads)] + [f"L{layer} MLP"]
        self.before[None] = len(self.writers)

    def __call__(self) -> float:
        with _split(self.model):
            self.found: dict[str, torch.Tensor] = {}
            self.differs = torch.zeros(*self.pairs.clean.inputs.shape, len(self.writers), self.model.cfg.d_model)
            ends = [self._written(side.inputs, sign) for side, sign in zip(self._sides, (-1, 1), strict=True)]
            shares = [k / self.steps for k in range(self.steps)] if self.steps else [1.0]
            for share in shares:
                self._backward(torch.lerp(ends[1], ends[0], share))
        for total in self.found.values():
            total /= len(shares) * len(self.pairs)
        return 1.0

    @property
    def scores(self) -> dict[str, float]:
        return {
            f"{self.writers[i]} → {reader}": float(value)
            for reader, values in self.found.items()
            for i, value in enumerate(values)
        }

    @property
    def _sides(self) -> tuple[Any, Any]:
        return self.pairs.clean, self.pairs.corrupted

    @torch.no_grad()
    def _written(self, tokens: torch.Tensor, sign: int) -> torch.Tensor:
        """Add what all parts write in a run to the differences; the embeddings come back."""
        embedded = torch.empty(0)

        def add(value: torch.Tensor, hook: Any, at: slice) -> None:
            nonlocal embedded
            if at.start == 0:
                embedded = value.clone()
            self.differs[:, :, at] += sign * (value if value.ndim == 4 else value[:, :, None])

        n = self.model.cfg.n_heads
        hooks: list[Any] = [("blocks.0.hook_resid_pre", partial(add, at=slice(0, 1)))]
        for layer in range(self.model.cfg.n_layers):
            first = self.before[layer]
            hooks.append((f"blocks.{layer}.attn.hook_result", partial(add, at=slice(first, first + n))))
            hooks.append((f"blocks.{layer}.hook_mlp_out", partial(add, at=slice(first + n, first + n + 1))))
        self.model.run_with_hooks(tokens, fwd_hooks=hooks)
        return embedded

    def _backward(self, embedded: torch.Tensor) -> None:
        """One run from these embeddings, and the gradient at every reader's input."""
        cfg = self.model.cfg
        backward: list[Any] = []
        for layer in range(cfg.n_layers):
            for way in "qkv":
                score = partial(self._score, layer=layer, way=way, n_before=self.before[layer])
                backward.append((f"blocks.{layer}.hook_{way}_input", score))
            n_before = self.before[layer] + cfg.n_heads
            score = partial(self._score, layer=layer, way="mlp", n_before=n_before)
            backward.append((f"blocks.{layer}.hook_mlp_in", score))
        end = partial(self._score, layer=None, way="", n_before=len(self.writers))
        backward.append((f"blocks.{cfg.n_layers - 1}.hook_resid_post", end))
        start: list[Any] = [("blocks.0.hook_resid_pre", lambda value, hook: embedded.clone().requires_grad_())]
        with torch.enable_grad(), self.model.hooks(fwd_hooks=start, bwd_hooks=backward):
            logits = self.model(self.pairs.clean.inputs)[:, -1]
            answer, foil = self.pairs.answer[:, -1], self.pairs.foil[:, -1]
            (at_target(logits, answer) - at_target(logits, foil)).sum().backward()
        self.model.zero_grad()

    def _score(self, gradient: torch.Tensor, hook: Any, layer: int | None, way: str, n_before: int) -> None:
        gradient = gradient if gradient.ndim == 4 else gradient[:, :, None]
        found = torch.einsum("bpwd,bprd->rw", self.differs[:, :, :n_before], gradient)
        for number, of_reader in enumerate(found):
            name = "logits" if layer is None else f"L{layer} MLP" if way == "mlp" else f"L{layer}H{number} {way}"
            self.found[name] = self.found.get(name, 0) + of_reader


@contextmanager
def _split(model: HookedTransformer) -> Iterator[None]:
    """Within the block every head and MLP has an input of its own, and what each head writes is kept apart."""
    switches: list[Callable[[bool], None]] = [
        model.set_use_split_qkv_input,
        model.set_use_hook_mlp_in,
        model.set_use_attn_result,
        model.set_ungroup_grouped_query_attention,
    ]
    for switch in switches:
        switch(True)
    try:
        yield
    finally:
        for switch in switches:
            switch(False)
