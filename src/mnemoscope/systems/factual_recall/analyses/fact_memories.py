r"""Memories of facts in the weights: memory-recall scores at the OV circuits and at the MLP.

A head h gives subject and relation of a fact the attention :math:`\alpha_h(s)` and :math:`\alpha_h(r)`, in the mean
over places and noise. It writes :math:`x_h = \alpha_h(s)\, e_s W_{OV}^h + \alpha_h(r)\, e_r W_{OV}^h`. The OV circuits
recall the fact if :math:`\sum_h x_h` is nearest to the answer's unembedding, among all answers; the MLP does if
:math:`\mathrm{ReLU}(\sum_h x_h W_{in} + b_{in}) W_{out}` is; the sum of both is what the model says but for noise.
(Nichani, Lee & Bietti 2025, section 4; scores as in `mnemoscope.analyses.recall`.)

*Shows* which memory the answer can be read from. *Does not show* that the model does: attention differs from sequence
to sequence, and noise is left out. `routes` is the causal test.
"""

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope import HookedModel, InputError, ParamSite, Task, generator
from mnemoscope.analyses import Association, embeddings, mlp_block, product, recall, weight
from mnemoscope.systems.factual_recall.analyses.stages import facts_task
from mnemoscope.systems.factual_recall.tasks import FactualRecall

MEMORIES = ("OV", "MLP", "both")


@torch.no_grad()
def fact_memories(model: HookedModel, task: Task, *, n_each: int = 8, seed: int = 0) -> xr.Dataset:
    """The share of the facts that the weights of a one-layer model without LayerNorm recall.

    Attention is averaged over `n_each` sequences of each fact. Over memory (without an MLP only OV): `recall`;
    `permuted`, the same for permuted answers; `chance`.
    """
    task = facts_task(task)
    if model.cfg.n_layers != 1 or model.cfg.normalization_type is not None:
        raise InputError("memories of facts are read from models of one layer without normalisation")
    written = _written(model, task, n_each, seed)
    inputs, matrices = {"OV": written}, {"OV": torch.eye(written.shape[1]).to(written)}
    if not model.cfg.attn_only:
        before = written @ weight(model, ParamSite(name="W_in", layer=0)) + mlp_block(model, 0).mlp.b_in
        hidden, out = before.relu(), weight(model, ParamSite(name="W_out", layer=0))
        inputs |= {"MLP": hidden, "both": torch.cat((written, hidden), 1)}
        matrices |= {"MLP": out, "both": torch.cat((matrices["OV"], out))}
    answers = embeddings(model, "W_U", list(task.answers))
    found = []
    for name in inputs:
        association = Association(name=name, inputs=inputs[name], outputs=answers, targets=task.table().flatten())
        found.append(recall(matrices[name], association, seed=seed)[["recall", "permuted", "chance"]])
    result = xr.concat(found, xr.DataArray(list(inputs), dims="memory", name="memory"))
    assert isinstance(result, xr.Dataset)
    return result


def _written(model: HookedModel, task: FactualRecall, n_each: int, seed: int) -> Float[Tensor, "fact d_model"]:
    """The sum of what all heads write at the query of each fact, noise aside; subject by subject."""
    batch = task.every_fact(n_each, generator=generator(seed, "fact memories"))
    name = "blocks.0.attn.hook_pattern"
    pattern = model.run_with_cache(batch.inputs, names_filter=name)[1][name][:, :, -1].double()
    written = torch.zeros(task.n_subjects, task.n_relations, model.cfg.d_model, dtype=torch.double)
    for kind, size, axis in (("subject", task.n_subjects, 1), ("relation", task.n_relations, 0)):
        place = batch.latents[f"{kind}_pos"][:, None, None].expand(-1, model.cfg.n_heads, 1)
        each = pattern.gather(-1, place).view(n_each, task.n_subjects, task.n_relations, -1).mean(0)
        first = task.first[kind]
        vectors = embeddings(model, "W_E", list(range(first, first + size)))
        for head in range(model.cfg.n_heads):
            moved = vectors @ product(model, "OV", layer=0, head=head)
            written += each[..., head, None] * moved.unsqueeze(axis)
    return written.flatten(0, 1)
