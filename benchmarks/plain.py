"""The same analyses in plain PyTorch, as good as one would write it by hand, against ours.

Each rival is a functional forward pass of the shape of SmolLM2 on packed weights (packing counts) that starts where
something changes: from the patched position on, with the keys and values of the base run kept, cells of all layers in
one batch that grows from layer to layer. Values are compared: both give the same numbers to 1e-4.
"""

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from language import N_POS, SHAPES, shaped
from mnemoscope.analyses.ablation import ablate
from mnemoscope.analyses.attribution import logit_attribution
from mnemoscope.analyses.estimates import attribute_edges
from mnemoscope.analyses.patching import patch
from mnemoscope.core.batch import Batch
from mnemoscope.core.metrics import LOGIT_DIFF
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.site import Site
from mnemoscope.models.lens import HookedTransformer
from patching import random_pairs
from timing import Figure, duration, interleave, ratio

NAME = "SmolLM2 135M"


class Plain:
    """The weights of a Llama, packed, and its layers as functions."""

    @torch.no_grad()
    def __init__(self, model: HookedTransformer):
        cfg = model.cfg
        self.n_heads, self.n_kv, self.d_head, self.eps = cfg.n_heads, cfg.n_key_value_heads, cfg.d_head, cfg.eps
        self.w_e, self.w_u, self.b_u, self.final = model.W_E, model.W_U.T, model.b_U, model.ln_final.w
        self.layers = []
        for block in model.blocks:
            attn, mlp = block.attn, block.mlp
            heads = [w.transpose(0, 1).flatten(1) for w in (attn.W_Q, attn._W_K, attn._W_V)]
            biases = torch.cat([b.flatten() for b in (attn.b_Q, attn._b_K, attn._b_V)])
            gate = torch.cat((mlp.W_gate, mlp.W_in), 1).T.contiguous()
            self.layers.append(
                (block.ln1.w, torch.cat(heads, 1).T.contiguous(), biases, attn.W_O.flatten(0, 1).T, attn.b_O,
                 block.ln2.w, gate, mlp.b_in, mlp.W_out.T, mlp.b_out)
            )  # fmt: skip
        self.cos, self.sin = model.blocks[0].attn.rotary_cos, model.blocks[0].attn.rotary_sin

    def turned(self, x: Tensor, start: int) -> Tensor:
        """Queries or keys with rotary positions from `start` on."""
        first, second = x.chunk(2, -1)
        at = slice(start, start + x.shape[-2])
        return x * self.cos[at] + torch.cat((-second, first), -1) * self.sin[at]

    def qkv(self, index: int, x: Float[Tensor, "row pos d_model"], start: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, heads before positions."""
        ln1, w, b = self.layers[index][:3]
        widths = [n * self.d_head for n in (self.n_heads, self.n_kv, self.n_kv)]
        parts = F.linear(F.rms_norm(x, x.shape[-1:], ln1, self.eps), w, b).split(widths, -1)
        q, k, v = (part.unflatten(-1, (-1, self.d_head)).transpose(1, 2) for part in parts)
        return self.turned(q, start), self.turned(k, start), v

    def z(self, q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "row pos heads"]:
        """Outputs z of heads; the queries are the last positions."""
        n, n_keys = q.shape[-2], k.shape[-2]
        mask = torch.ones(n, n_keys, dtype=torch.bool).tril(n_keys - n)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True).transpose(1, 2).flatten(2)

    def after(self, index: int, x: Tensor, z: Tensor) -> Tensor:
        """The stream after a layer."""
        w_o, b_o, ln2, gate, b_in, w_out, b_out = self.layers[index][3:]
        x = x + F.linear(z, w_o, b_o)
        g, up = F.linear(F.rms_norm(x, x.shape[-1:], ln2, self.eps), gate).chunk(2, -1)
        return x + F.linear(F.silu(g) * up + b_in, w_out, b_out)

    def logits(self, x: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_vocab"]:
        """Logits from the stream after the last layer."""
        return F.linear(F.rms_norm(x, x.shape[-1:], self.final, self.eps), self.w_u, self.b_u)

    def run(
        self, tokens: Int[Tensor, "prompt pos"]
    ) -> tuple[list[Tensor], list[tuple[Tensor, Tensor, Tensor]], Tensor]:
        """The stream before each layer, keys, values and z of each, and the last logits."""
        x, streams, past = self.w_e[tokens], [], []
        for index in range(len(self.layers)):
            q, k, v = self.qkv(index, x, 0)
            z = self.z(q, k, v)
            streams.append(x)
            past.append((k, v, z))
            x = self.after(index, x, z)
        return streams, past, self.logits(x[:, -1])


@torch.no_grad()
def by_position(model: HookedTransformer, pairs: PromptPairs, found: dict[str, Tensor]) -> float:
    """The stream before each layer and position of the clean run put into the corrupted one."""
    plain = Plain(model)
    n_layers, (n, n_pos) = len(plain.layers), pairs.clean.inputs.shape
    clean, (base, past, _) = plain.run(pairs.clean.inputs)[0], plain.run(pairs.corrupted.inputs)
    value = torch.empty(n_layers, n_pos, n)
    for pos in range(n_pos):
        x = base[0].new_empty(0, n_pos - pos, base[0].shape[-1])
        for index in range(n_layers):
            cell = base[index][:, pos:].clone()
            cell[:, 0] = clean[index][:, pos]
            x = torch.cat((x, cell))
            q, k, v = plain.qkv(index, x, pos)
            k, v = (
                torch.cat((old[:, :, :pos].repeat(index + 1, 1, 1, 1), new), 2)
                for old, new in zip(past[index][:2], (k, v), strict=True)
            )
            if index == n_layers - 1:
                q, x = q[:, :, -1:], x[:, -1:]
            x = plain.after(index, x, plain.z(q, k, v))
        value[:, pos] = _difference(plain.logits(x[:, -1]), pairs).view(n_layers, n)
    found["rival"] = value
    return 1.0


@torch.no_grad()
def by_head(model: HookedTransformer, pairs: PromptPairs, found: dict[str, Tensor]) -> float:
    """Each head's z in the clean run put into the corrupted one, at all positions."""
    plain = Plain(model)
    n_layers, n = len(plain.layers), len(pairs)
    clean, (base, past, _) = plain.run(pairs.clean.inputs)[1], plain.run(pairs.corrupted.inputs)
    x = base[0].new_empty(0, *base[0].shape[1:])
    for index in range(n_layers):
        q, k, v = plain.qkv(index, x, 0)
        z = plain.z(q, k, v) if len(x) else x.new_empty(0, x.shape[1], plain.n_heads * plain.d_head)
        own = past[index][2].repeat(plain.n_heads, 1, 1).unflatten(0, (plain.n_heads, n))
        for head in range(plain.n_heads):
            at = slice(head * plain.d_head, (head + 1) * plain.d_head)
            own[head, ..., at] = clean[index][2][..., at]
        x = torch.cat((x, base[index].repeat(plain.n_heads, 1, 1)))
        z = torch.cat((z, own.flatten(0, 1)))
        if index == n_layers - 1:
            x, z = x[:, -1:], z[:, -1:]
        x = plain.after(index, x, z)
    found["rival"] = _difference(plain.logits(x[:, -1]), pairs).view(n_layers, plain.n_heads, n)
    return 1.0


@torch.no_grad()
def ablations(
    model: HookedTransformer, batch: Batch, heads: Sequence[tuple[int, int]], found: dict[str, Tensor]
) -> float:
    """Mean ablation of heads one at a time, each from its layer on; log-probabilities of the answers."""
    plain = Plain(model)
    streams, past, _ = plain.run(batch.inputs)
    losses = []
    for layer, head in heads:
        z, at = past[layer][2].clone(), slice(head * plain.d_head, (head + 1) * plain.d_head)
        z[..., at] = z[..., at].mean(0)
        x = plain.after(layer, streams[layer], z)
        for index in range(layer + 1, len(plain.layers)):
            q, k, v = plain.qkv(index, x, 0)
            if index == len(plain.layers) - 1:
                q, x = q[:, :, -1:], x[:, -1:]
            x = plain.after(index, x, plain.z(q, k, v))
        logits = plain.logits(x[:, -1]).double()
        losses.append(logits.log_softmax(-1).gather(1, batch.targets[:, -1:]).mean())
    found["rival"] = torch.stack(losses)
    return float(len(heads))


Writers = Float[Tensor, "writer prompt pos d_model"]


def _traced(plain: Plain, tokens: Int[Tensor, "prompt pos"]) -> tuple[Writers, Writers, dict[str, list[Tensor]]]:
    """Outputs of embedding, heads and MLPs; those of the last layer at the last position; further activations."""
    x = plain.w_e.detach()[tokens].requires_grad_(torch.is_grad_enabled())
    written, kept = [x], {"pre": [], "qkv": [], "mid": [], "mlp": []}
    widths = [n * plain.d_head for n in (plain.n_heads, plain.n_kv, plain.n_kv)]
    for index, (ln1, w, b, w_o, b_o, ln2, gate, b_in, w_out, b_out) in enumerate(plain.layers):
        qkv = F.linear(F.rms_norm(x, x.shape[-1:], ln1, plain.eps), w, b)
        kept["pre"].append(x)
        q, k, v = (part.unflatten(-1, (-1, plain.d_head)).transpose(1, 2) for part in qkv.split(widths, -1))
        q, k = plain.turned(q, 0), plain.turned(k, 0)
        if index == len(plain.layers) - 1:
            q, x = q[:, :, -1:], x[:, -1:]
        z = plain.z(q, k, v)
        written += torch.einsum(
            "bphw,hwd->hbpd", z.detach().unflatten(-1, (plain.n_heads, -1)), w_o.T.unflatten(0, (plain.n_heads, -1))
        ).unbind()
        mid = x + F.linear(z, w_o, b_o)
        g, up = F.linear(F.rms_norm(mid, x.shape[-1:], ln2, plain.eps), gate).chunk(2, -1)
        mlp = F.linear(F.silu(g) * up + b_in, w_out, b_out)
        for name, tensor in (("qkv", qkv), ("mid", mid), ("mlp", mlp)):
            kept[name].append(tensor)
        written.append(mlp)
        x = mid + mlp
    n = len(written) - plain.n_heads - 1
    early, late = (torch.stack([each.detach() for each in some]) for some in (written[:n], written[n:]))
    return early, late, {**kept, "end": [x]}


@torch.no_grad()
def edges(model: HookedTransformer, pairs: PromptPairs, found: dict[str, Tensor]) -> float:
    """Edge attribution patching of all edges: differences of writers times gradients at the inputs of readers.

    The queries, heads and MLP of the last layer are taken at the position that is read.
    """
    plain = Plain(model)
    n_layers, n_heads, n_kv = len(plain.layers), plain.n_heads, plain.n_kv
    clean = _traced(plain, pairs.clean.inputs)
    with torch.enable_grad():
        *corrupted, kept = _traced(plain, pairs.corrupted.inputs)
        ends = (*kept["qkv"], *kept["mlp"], *kept["end"])
        value = _difference(plain.logits(kept["end"][0][:, -1]), pairs).sum()
        gradients = torch.autograd.grad(value, ends, retain_graph=True)
    early, late = ((a - b).transpose(0, 1) for a, b in zip(clean[:2], corrupted, strict=True))
    everywhere, at_end = early.flatten(2), torch.cat((early[:, :, -1:], late), 1).flatten(2)
    scores = []
    order = [n_heads + way * n_kv + group for group in range(n_kv) for way in (0, 1)] + [*range(n_heads)]
    for index in range(n_layers):
        is_last, before = index == n_layers - 1, 1 + index * (n_heads + 1)
        for heads, at_last in ((order[: 2 * n_kv], False), (order[2 * n_kv :], True)) if is_last else ((order, False),):
            differs, pos = (at_end, slice(-1, None)) if at_last else (everywhere, slice(None))
            g = _pulled(plain, index, kept["pre"][index][:, pos].detach(), gradients[index][:, pos], heads)
            scores.append(g.flatten(2) @ differs[:, :before].mT)
        (g,) = torch.autograd.grad(
            kept["mlp"][index], kept["mid"][index], gradients[n_layers + index], retain_graph=True
        )
        differs = at_end if is_last else everywhere
        scores.append(g.flatten(1)[:, None] @ differs[:, : before + n_heads].mT)
    scores.append(gradients[-1].flatten(1)[:, None] @ at_end.mT)
    found["rival"] = torch.cat([score.flatten(1) for score in scores], 1).T
    return 1.0


def _pulled(
    plain: Plain, index: int, x: Float[Tensor, "prompt pos d_model"], g: Float[Tensor, "prompt pos rows"], heads: Any
) -> Float[Tensor, "prompt head pos d_model"]:
    """Gradients at queries, keys or values of some heads, taken back to the stream."""
    ln1, w = plain.layers[index][:2]
    g = g.unflatten(-1, (-1, plain.d_head))[:, :, heads]
    g = torch.einsum("bphw,hwd->bhpd", g, w.unflatten(0, (-1, plain.d_head))[heads]) * ln1
    scale = (x.square().mean(-1, keepdim=True) + plain.eps).rsqrt()
    unit = (x * scale)[:, None]
    return (g - unit * (g * unit).mean(-1, keepdim=True)) * scale[:, None]


def attribution(model: HookedTransformer, batch: Batch, found: dict[str, Tensor]) -> float:
    """Logit attribution by head at the last position: head outputs along the direction of a logit difference."""
    plain = Plain(model)
    with torch.no_grad():
        streams, past, _ = plain.run(batch.inputs)
        x = plain.after(len(plain.layers) - 1, streams[-1], past[-1][2])[:, -1]
        d = plain.w_u[batch.targets[:, -1]] - plain.w_u.mean(0)
        d = (plain.final * d).double() * (x.double().square().mean(-1, keepdim=True) + plain.eps).rsqrt()
        z = torch.stack([each[2][:, -1] for each in past]).unflatten(-1, (plain.n_heads, -1)).double()
        w_o = torch.stack([layer[3] for layer in plain.layers]).unflatten(-1, (plain.n_heads, -1)).double()
        found["rival"] = torch.einsum("lbhw,ldhw,bd->lhb", z, w_o, d)
    return 1.0


def _difference(logits: Float[Tensor, "row d_vocab"], pairs: PromptPairs) -> Float[Tensor, " row"]:
    """Logit differences, of the cells of all prompts one after the other."""
    n = len(logits) // len(pairs)
    answer, foil = (tokens[:, -1].repeat(n)[:, None] for tokens in (pairs.answer, pairs.foil))
    return (logits.gather(1, answer) - logits.gather(1, foil))[:, 0]


def sweeps(quick: bool) -> list[Figure]:
    """Patching sweeps of one and of eight prompts."""
    model = shaped(SHAPES[NAME][1], quick)
    figures = []
    for n in (1, 8):
        pairs = random_pairs(n, n_pos=N_POS, d_vocab=model.cfg.d_vocab)
        figures += [
            _patching(f"{NAME}: patching by layer and {axis}, {n} prompts", model, pairs, rival, kind, axis, quick)
            for axis, kind, rival in (("pos", "resid_pre", by_position), ("head", "z", by_head))
        ]
    return [*figures, _ablation(model, quick), _edges(model, quick), _attribution(model, quick)]


def _edges(model: HookedTransformer, quick: bool) -> Figure:
    pairs, found = random_pairs(8, n_pos=N_POS, d_vocab=model.cfg.d_vocab), {}

    def ours() -> float:
        result = attribute_edges(model, pairs, metrics=[LOGIT_DIFF], directions=["denoising"])
        found["ours"] = torch.tensor((result.value - result.corrupted)[0, 0].values)
        return 1.0

    contenders = {"rival": partial(edges, model, pairs, found), "ours": ours}
    return _figure(f"{NAME}: EAP of all edges, {len(pairs)} prompts", interleave(contenders, 1 if quick else 3), found)


def _attribution(model: HookedTransformer, quick: bool) -> Figure:
    batch, found = random_pairs(8, n_pos=N_POS, d_vocab=model.cfg.d_vocab).clean, {}

    def ours() -> float:
        result = logit_attribution(model, batch, by="head")
        found["ours"] = torch.tensor(result.attribution.values[..., 0])
        return 1.0

    contenders = {"rival": partial(attribution, model, batch, found), "ours": ours}
    title = f"{NAME}: logit attribution by head, {len(batch)} prompts"
    return _figure(title, interleave(contenders, 1 if quick else 3), found)


def _ablation(model: HookedTransformer, quick: bool) -> Figure:
    batch = random_pairs(8, n_pos=N_POS, d_vocab=model.cfg.d_vocab).clean
    heads = [(layer, 0) for layer in range(0, model.cfg.n_layers, 1 if quick else 3)]
    targets = {f"L{layer}H{head}": [Site(kind="z", layer=layer, head=head)] for layer, head in heads}
    found: dict[str, Tensor] = {}

    def ours() -> float:
        skills = {"last": batch.scored}
        result = ablate(model, batch, skills=skills, reference=batch, targets=targets, kinds=("mean",))
        found["ours"] = torch.tensor(result.log_prob[0, :, 0].values)
        return float(len(heads))

    contenders = {"rival": partial(ablations, model, batch, heads, found), "ours": ours}
    title = f"{NAME}: mean ablation of {len(heads)} heads, {len(batch)} prompts"
    return _figure(title, interleave(contenders, 1 if quick else 3), found)


def _figure(title: str, seconds: dict[str, list[float]], found: dict[str, Tensor]) -> Figure:
    value, spread = ratio(seconds["rival"], seconds["ours"])
    times = ", ".join(f"{who} {duration(median(seconds[who]))}" for who in ("ours", "rival"))
    difference = float((found["ours"] - found["rival"].double()).abs().max())
    note = f"{times}; difference {difference:.0e}"
    return Figure(group="plain", name=title, value=value, unit="x", spread=spread, aim=1.0, note=note)


def _patching(
    title: str,
    model: HookedTransformer,
    pairs: PromptPairs,
    rival: Callable[..., float],
    kind: Any,
    axis: str,
    quick: bool,
) -> Figure:
    found: dict[str, Tensor] = {}

    def ours() -> float:
        result = patch(model, pairs, kind=kind, over=("layer", axis), metrics=[LOGIT_DIFF], directions=["denoising"])
        found["ours"] = torch.tensor(result.value[0, 0].values)
        return 1.0

    contenders = {"rival": partial(rival, model, pairs, found), "ours": ours}
    return _figure(title, interleave(contenders, 1 if quick else 3), found)
