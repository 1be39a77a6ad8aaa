"""Edges patched one at a time by TransformerLens's own means: an input of its own for every head and MLP."""

from contextlib import contextmanager

import torch

from mnemoscope.core.batch import Batch
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.site import LOGITS, Edge
from tests.support import seeded


def random_pairs(n: int = 4, *, d_vocab: int = 50, n_pos: int = 6, n_scored: int = 2, seed: int = 0) -> PromptPairs:
    """Prompts that differ everywhere, read at the last positions."""
    tokens = torch.randint(d_vocab, (4, n, n_pos), generator=seeded(seed))
    scored = (torch.arange(n_pos) >= n_pos - n_scored).expand(n, -1)
    clean, corrupted = (Batch(inputs=tokens[i], targets=tokens[i + 2], scored=scored) for i in range(2))
    return PromptPairs(clean=clean, corrupted=corrupted, name="random")


@contextmanager
def split(model):
    """Within the block every reader has a hook point for its own input."""
    model.set_use_split_qkv_input(True)
    if not model.cfg.attn_only:
        model.set_use_hook_mlp_in(True)
    try:
        yield
    finally:
        model.set_use_split_qkv_input(False)
        if not model.cfg.attn_only:
            model.set_use_hook_mlp_in(False)


def output(model, cache, writer):
    """What a part has written, `batch pos d_model`."""
    if writer.kind == "z":
        return cache[writer.hook][:, :, writer.head] @ model.blocks[writer.layer].attn.W_O[writer.head]
    return cache[writer.hook].expand_as(cache["blocks.0.hook_resid_pre"])


def added(model, edge: Edge, difference):
    """A hook that adds to the input of an edge's reader."""
    if edge.reader == LOGITS:
        return f"blocks.{model.cfg.n_layers - 1}.hook_resid_post", lambda x, hook: x + difference
    if edge.reader.kind == "mlp_out":
        return f"blocks.{edge.reader.layer}.hook_mlp_in", lambda x, hook: x + difference

    def to_head(x, hook):
        x = x.clone()
        x[:, :, edge.reader.head] += difference
        return x

    return f"blocks.{edge.reader.layer}.hook_{edge.through}_input", to_head


@torch.no_grad()
def by_hand(model, base, other, edges, *, at=None):
    """Logits on `base` with one edge at a time carrying what it carries on `other`; `at` masks positions."""
    with split(model):
        caches = [model.run_with_cache(tokens)[1] for tokens in (base, other)]
        found = []
        for edge in edges:
            old, new = (output(model, cache, edge.writer) for cache in caches)
            difference = new - old if at is None else (new - old) * at[..., None]
            found.append(model.run_with_hooks(base, fwd_hooks=[added(model, edge, difference)]))
    return torch.stack(found)


def mean_logit_difference(pairs, logits):
    """Answer minus foil, the mean over the scored positions of every prompt."""
    at = [
        logits.gather(-1, tokens.expand(logits.shape[:-1])[..., None])[..., 0] for tokens in (pairs.answer, pairs.foil)
    ]
    return ((at[0] - at[1]) * pairs.scored).sum(-1) / pairs.scored.sum(-1)
