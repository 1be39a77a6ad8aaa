"""Edge attribution as its authors publish it: on the hook points that TransformerLens adds for every reader's input.

Scores as in the package of Hanna, Pezzelle & Belinkov (2024), `corrupted - clean` times the gradient of minus the
metric, summed over positions and averaged over prompts.
"""

import torch

from mnemoscope.core.site import LOGITS
from tests.split_hooks import mean_logit_difference, output, split


def input_name(model, edge):
    """The hook point of a reader's input."""
    if edge.reader == LOGITS:
        return f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"
    end = "hook_mlp_in" if edge.reader.kind == "mlp_out" else f"hook_{edge.through}_input"
    return f"blocks.{edge.reader.layer}.{end}"


def scores(model, pairs, edges, runs):
    """A score an edge; `runs` are lists of hooks, one list for every point at which the gradient is taken."""
    total = torch.zeros(len(edges), dtype=model.cfg.dtype)
    with split(model):
        with torch.no_grad():
            clean, corrupted = (model.run_with_cache(side.inputs)[1] for side in (pairs.clean, pairs.corrupted))
        for hooks in runs:
            found = {}

            def keep(activation, hook, found=found):
                activation = activation if activation.requires_grad else activation.requires_grad_()
                activation.retain_grad()
                found[hook.name] = activation
                return activation

            listening = [(name, keep) for name in {input_name(model, edge) for edge in edges}]
            loss = -mean_logit_difference(
                pairs, model.run_with_hooks(pairs.clean.inputs, fwd_hooks=[*hooks, *listening])
            )
            loss.mean().backward()
            for number, edge in enumerate(edges):
                gradient = found[input_name(model, edge)].grad
                if gradient is None:
                    continue  # what stands in for an activation hides the reader
                if edge.through is not None:
                    gradient = gradient[:, :, edge.reader.head]
                differs = output(model, corrupted, edge.writer) - output(model, clean, edge.writer)
                total[number] += (differs * gradient).sum().detach()
    model.zero_grad()
    return total / len(runs)


def blended(model, pairs, name, share):
    """A hook that puts a mixture of both runs in the place of an activation."""
    with torch.no_grad():
        clean, corrupted = (model.run_with_cache(side.inputs)[1][name] for side in (pairs.clean, pairs.corrupted))
    return name, lambda activation, hook: share * clean + (1 - share) * corrupted
