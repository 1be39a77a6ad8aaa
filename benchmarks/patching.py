"""Activation patching of every layer and position against TransformerLens's own, and the memory that it allocates."""

from statistics import median
from unittest import mock

import torch
from torch.profiler import ProfilerActivity, profile
from transformer_lens import patching

from mnemoscope.analyses.patching import patch
from mnemoscope.core.batch import Batch
from mnemoscope.core.metrics import LOGIT_DIFF, at_target
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.seeding import generator
from mnemoscope.engine.budget import MAX_BYTES
from mnemoscope.models.building import from_configuration
from mnemoscope.models.lens import HookedTransformer
from timing import Contender, Figure, duration, interleave, ratio

N_POS, D_VOCAB = 28, 500
CONFIG = {
    "n_layers": 12,
    "d_model": 128,
    "n_heads": 4,
    "d_head": 32,
    "d_mlp": 512,
    "d_vocab": D_VOCAB,
    "n_ctx": N_POS,
    "act_fn": "gelu",
    "normalization_type": "LN",
    "dtype": "float32",
}
AIMS = {1: 10.0, 32: 3.0}


def model() -> HookedTransformer:
    """An untrained model of 12 layers."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return from_configuration(CONFIG).eval()


def random_pairs(n: int, *, n_pos: int = N_POS, d_vocab: int = D_VOCAB) -> PromptPairs:
    """Prompts that differ at every position: the dearest case, since nothing before a difference has to be run."""
    stream = generator(0, "benchmark")
    tokens = torch.randint(d_vocab, (4, n, n_pos), generator=stream)
    scored = (torch.arange(n_pos) == n_pos - 1).expand(n, -1)
    clean, corrupted = (Batch(inputs=tokens[i], targets=tokens[i + 2], scored=scored) for i in range(2))
    return PromptPairs(clean=clean, corrupted=corrupted, name="random")


class Rival:
    """`get_act_patch_resid_pre`, which runs the model once a cell and returns means over prompts."""

    def __init__(self, model: HookedTransformer, pairs: PromptPairs):
        self.model, self.pairs, self.result = model, pairs, torch.empty(0)
        _, self.cache = model.run_with_cache(pairs.clean.inputs)

    @torch.no_grad()
    def __call__(self) -> float:
        answer, foil = self.pairs.answer[:, -1], self.pairs.foil[:, -1]

        def metric(logits: torch.Tensor) -> torch.Tensor:
            return (at_target(logits[:, -1], answer) - at_target(logits[:, -1], foil)).mean()

        with mock.patch.object(patching, "tqdm", iter):  # no progress bar
            self.result = patching.get_act_patch_resid_pre(self.model, self.pairs.corrupted.inputs, self.cache, metric)
        return 1.0


class Ours:
    """`patch`, its two recorded runs included; it returns the value of every prompt."""

    def __init__(self, model: HookedTransformer, pairs: PromptPairs):
        self.model, self.pairs, self.result = model, pairs, torch.empty(0)

    def __call__(self) -> float:
        over, directions = ("layer", "pos"), ("denoising",)
        result = patch(self.model, self.pairs, kind="resid_pre", over=over, metrics=[LOGIT_DIFF], directions=directions)
        self.result = torch.from_numpy(result.value.values[0, 0].mean(-1))
        return 1.0


def sweeps(quick: bool) -> list[Figure]:
    """All layers and positions of resid_pre, one metric, denoising."""
    figures, subject = [], model()
    for n, aim in AIMS.items():
        rival, ours = Rival(subject, random_pairs(n)), Ours(subject, random_pairs(n))
        contenders: dict[str, Contender] = {"rival": rival, "ours": ours}
        seconds = interleave(contenders, (2 if quick else 5) if n == 1 else (1 if quick else 3))
        value, spread = ratio(seconds["rival"], seconds["ours"])
        prompts = f"{n} prompt{'s' * (n > 1)}"
        figures.append(
            Figure(
                group="patching",
                name=f"resid_pre, 12 layers x {N_POS} positions, {prompts}",
                value=value,
                unit="x",
                spread=spread,
                aim=aim,
                note=f"ours {duration(median(seconds['ours']))}, rival {duration(median(seconds['rival']))}",
            )
        )
        largest = float((rival.result.double() - ours.result).abs().max())
        name = f"difference of the means, {prompts}"
        figures.append(Figure(group="patching", name=name, value=largest, unit="", aim=1e-5, at_most=True))
        if n == max(AIMS):
            figures.append(memory(ours, prompts))
    return figures


def most_at_once(work: Contender) -> int:
    """The largest number of bytes of tensors alive at the same time, those made before not counted."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        work()
    events = record.profiler.kineto_results.events()  # pyright: ignore[reportOptionalMemberAccess]
    held = peak = 0
    for event in events:
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def memory(work: Contender, prompts: str) -> Figure:
    """The most that is allocated at once while patching."""
    return Figure(
        group="patching",
        name=f"most memory at once, {prompts}",
        value=most_at_once(work) / 2**20,
        unit="MiB",
        aim=MAX_BYTES / 2**20,
        at_most=True,
        note="tensors; the aim is the budget that it was given",
    )
