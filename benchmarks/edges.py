"""Every edge of a model patched by itself, against one hooked forward pass an edge, and the memory that it takes."""

from collections.abc import Callable
from dataclasses import replace
from statistics import median

import torch
from transformer_lens import ActivationCache

from mnemoscope.analyses.patching import patch_edges
from mnemoscope.core.metrics import LOGIT_DIFF, at_target
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.site import Edge, Site
from mnemoscope.interventions.graph import model_edges
from mnemoscope.models.building import from_configuration
from mnemoscope.models.lens import HookedTransformer
from patching import CONFIG, N_POS, memory, random_pairs
from timing import Contender, Figure, duration, interleave, ratio

N_LAYERS, N_PROMPTS, AIM = 4, 32, 5.0

Hook = Callable[..., torch.Tensor]


def model(d_model: int) -> HookedTransformer:
    """An untrained model of 4 layers with 4 heads each."""
    width = {"d_model": d_model, "d_head": d_model // CONFIG["n_heads"], "d_mlp": 4 * d_model}
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return from_configuration({**CONFIG, **width, "n_layers": N_LAYERS}).eval()


def late(prompts: PromptPairs) -> PromptPairs:
    """The same prompts, different from each other in the last quarter only."""
    alike = torch.arange(N_POS) < 3 * N_POS // 4
    tokens = torch.where(alike, prompts.clean.inputs, prompts.corrupted.inputs)
    return replace(prompts, corrupted=replace(prompts.corrupted, inputs=tokens))


class Rival:
    """A hooked forward pass an edge: writers' outputs of both runs are known, logits are formed only where they are
    read.
    """

    def __init__(self, model: HookedTransformer, pairs: PromptPairs, *, from_reader: bool = False):
        self.model, self.pairs, self.from_reader, self.result = model, pairs, from_reader, torch.empty(0)
        model.set_use_hook_mlp_in(True)
        with torch.no_grad():
            clean, corrupted = (model.run_with_cache(side.inputs)[1] for side in (pairs.clean, pairs.corrupted))
            self.streams = [clean["resid_pre", layer] for layer in range(N_LAYERS)]
            self.changes = {edge.writer: self._written(edge.writer, corrupted, clean) for edge in model_edges(model)}

    def _written(self, writer: Site, corrupted: ActivationCache, clean: ActivationCache) -> torch.Tensor:
        change = corrupted[writer.hook] - clean[writer.hook]
        if writer.kind != "z":
            return change
        return change[:, :, writer.head] @ self.model.blocks[writer.layer].attn.W_O[writer.head]

    @torch.no_grad()
    def __call__(self) -> float:
        found = [self._logits(edge, *self._hooked(edge)) for edge in model_edges(self.model)]
        answer, foil = (at[:, -1].expand(len(found), -1) for at in (self.pairs.answer, self.pairs.foil))
        logits = torch.stack(found)
        self.result = at_target(logits, answer) - at_target(logits, foil)
        return 1.0

    def _logits(self, edge: Edge, name: str, hook: Hook) -> torch.Tensor:
        layer = edge.reader.layer if isinstance(edge.reader, Site) else N_LAYERS - 1
        start = {"start_at_layer": layer} if self.from_reader else {}
        inputs = self.streams[layer or 0] if self.from_reader else self.pairs.clean.inputs
        stream = self.model.run_with_hooks(inputs, **start, stop_at_layer=N_LAYERS, fwd_hooks=[(name, hook)])
        return self.model.unembed(self.model.ln_final(stream[:, -1:]))[:, 0]

    def _hooked(self, edge: Edge) -> tuple[str, Hook]:
        """The hook point at which the reader's input, or the result of a head for it, is put in."""
        change, reader, through = self.changes[edge.writer], edge.reader, edge.through
        if not isinstance(reader, Site):
            return f"blocks.{N_LAYERS - 1}.hook_resid_post", lambda stream, hook: stream + change
        if through is None:
            return f"blocks.{reader.layer}.hook_mlp_in", lambda stream, hook: stream + change
        assert reader.layer is not None
        block = self.model.blocks[reader.layer]
        weight, bias = (getattr(block.attn, f"{end}_{through.upper()}")[reader.head] for end in "Wb")
        read = self.streams[reader.layer] + change

        def put_in(projected: torch.Tensor, hook: object) -> torch.Tensor:
            projected[:, :, reader.head] = block.ln1(read) @ weight + bias
            return projected

        return f"blocks.{reader.layer}.attn.hook_{through}", put_in


class Ours:
    """`patch_edges`, its two recorded runs included."""

    def __init__(self, model: HookedTransformer, pairs: PromptPairs):
        self.model, self.pairs, self.result = model, pairs, torch.empty(0)

    def __call__(self) -> float:
        result = patch_edges(self.model, self.pairs, metrics=[LOGIT_DIFF], directions=("noising",))
        self.result = torch.from_numpy(result.value.values[0, 0])
        return 1.0


def sweeps(quick: bool) -> list[Figure]:
    """All edges, one metric, noising, 32 prompts that differ everywhere or in the last quarter.

    The last rival begins at the reader's layer with the stream that it kept; that is no longer one forward pass an
    edge, and has no aim.
    """
    narrow, wide, everywhere = model(64), model(128), random_pairs(N_PROMPTS)
    in_the_end = late(everywhere)
    ours = Ours(wide, everywhere)
    cases = {
        "d_model 64": (Ours(narrow, everywhere), Rival(narrow, everywhere), AIM),
        "d_model 128": (ours, Rival(wide, everywhere), AIM),
        "d_model 64, differing late": (Ours(narrow, in_the_end), Rival(narrow, in_the_end), AIM),
        "d_model 64, from the reader on": (Ours(narrow, everywhere), Rival(narrow, everywhere, from_reader=True), None),
    }
    figures = []
    for name, (mine, rival, aim) in cases.items():
        contenders: dict[str, Contender] = {"rival": rival, "ours": mine}
        seconds = interleave(contenders, 1 if quick else 3)
        value, spread = ratio(seconds["rival"], seconds["ours"])
        note = f"ours {duration(median(seconds['ours']))}, rival {duration(median(seconds['rival']))}"
        title = f"{len(mine.result)} edges, {name}"
        figures.append(Figure(group="edges", name=title, value=value, unit="x", spread=spread, aim=aim, note=note))
        largest = float((rival.result.double() - mine.result).abs().max())
        title = "largest difference of a prompt"
        figures.append(Figure(group="edges", name=title, value=largest, unit="", aim=1e-5, at_most=True))
    return [*figures, replace(memory(ours, f"{N_PROMPTS} prompts"), group="edges")]
