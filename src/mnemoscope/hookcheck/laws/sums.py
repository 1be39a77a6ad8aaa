"""Sums and products: each activation is what the formula of its part gives from the activations before it.

    stream = W_E[token] + W_pos[position], then stream += attention, stream += MLP     logits = norm(stream) W_U + b_U
    scores = q·k / attn_scale     pattern = softmax(scores)     z = Σ_key pattern v     attention = Σ_head z W_O + b_O

Formulas with weights need them under TransformerLens's names; elsewhere laws without weights stand for them.
"""

from collections.abc import Iterator
from typing import Any

import torch
from einops import einsum
from torch import Tensor

from mnemoscope.core.protocols import attention_mix, has_linear_attention
from mnemoscope.engine.pointwise import ACTIVATIONS
from mnemoscope.engine.relative_attention import relative_products
from mnemoscope.hookcheck.law import Family
from mnemoscope.hookcheck.laws.reach import NORMALIZED, visible
from mnemoscope.hookcheck.mutants import always, shows
from mnemoscope.interventions.comparison import Comparison
from mnemoscope.interventions.reach import by_head, mixed
from mnemoscope.interventions.subject import TestSubject

FAMILY = Family(name="sums", analyses=("heads", "circuits"))


def _weight(subject: TestSubject, name: str) -> Tensor:
    """A weight under TransformerLens's name; the law does not apply where there is none."""
    if "weights" not in subject.memory:
        subject.memory["weights"] = dict(subject.model.named_parameters())
    if name not in subject.memory["weights"]:
        subject.skip(f"the model has no parameter {name}")
    return subject.memory["weights"][name].detach()


def _values(subject: TestSubject, layer: int | None, *kinds: str) -> list[Tensor]:
    """Activations of the clean run."""
    return [subject.clean.at[subject.point(kind, layer)] for kind in kinds]


def _skip_norms_behind(subject: TestSubject, part: str) -> None:
    """The law does not apply to outputs that pass a norm before they are added."""
    if getattr(subject.cfg, "use_normalization_before_and_after", False):
        subject.skip(f"a norm lies behind {part}")


def _sum_in_block(subject: TestSubject, *kinds: str) -> Iterator[Comparison]:
    """In every block the last of these activations is the sum of the others."""
    for layer in subject.require(*kinds):
        *parts, total = _values(subject, layer, *kinds)
        yield Comparison(point=subject.point(kinds[-1], layer), got=total, wanted=sum(parts[1:], parts[0]))


@FAMILY.law(
    reason="Direct attribution splits the first stream into tokens and positions; scaled embeddings break the split.",
    mutant=shows("embed", lambda embed: embed * 2**0.5),
    threads=("logit attribution on a bridge of Gemma",),
)
def embeddings_sum_to_the_first_stream(subject: TestSubject) -> Iterator[Comparison]:
    """The first residual stream is the embedding of the token, as its hook point shows it, and that of the position."""
    if getattr(subject.cfg, "post_embedding_ln", False):
        subject.skip("embeddings are normalised")
    if subject.cfg.positional_embedding_type == "unknown":
        subject.skip("the model does not say how it embeds positions")
    subject.require("embed")
    if (point := subject.point("resid_pre", 0)) not in subject.clean.at:
        subject.skip("no run passes resid_pre of block 0")
    (total,) = _values(subject, None, "embed")
    if subject.cfg.positional_embedding_type == "standard":
        if not subject.layers_of("pos_embed"):
            subject.skip("no run passes pos_embed")
        total = total + _values(subject, None, "pos_embed")[0]
    yield Comparison(point=point, got=subject.clean.at[point], wanted=total)


@FAMILY.law(
    reason="The stream in the middle of a block is read as the sum of what came before and of attention.",
    mutant=shows("attn_out", lambda x: 1.1 * x),
    threads=("logit attribution on bridges of Gemma 3 and OLMo 2",),
)
def attention_is_added_to_the_stream(subject: TestSubject) -> Iterator[Comparison]:
    """In a block with attention and MLP in sequence, the middle stream is the stream before plus attention."""
    yield from _sum_in_block(subject, "resid_pre", "attn_out", "resid_mid")


@FAMILY.law(
    reason="The contribution of an MLP is read at mlp_out; with a norm behind it, it is what comes after the norm.",
    mutant=shows("mlp_out", lambda x: 1.1 * x),
    threads=("logit attribution on bridges of Gemma 3 and OLMo 2",),
)
def the_mlp_is_added_to_the_stream(subject: TestSubject) -> Iterator[Comparison]:
    """In a block with attention and MLP in sequence, the stream after is the middle stream plus the MLP."""
    yield from _sum_in_block(subject, "resid_mid", "mlp_out", "resid_post")


@FAMILY.law(
    reason="Edges and attributions take attention and MLP of one block as summands of one stream.",
    mutant=shows("mlp_out", lambda x: 1.1 * x),
)
def parallel_parts_are_added_to_one_stream(subject: TestSubject) -> Iterator[Comparison]:
    """In a block whose parts work in parallel, the stream after is the stream before plus both outputs."""
    if not subject.cfg.parallel_attn_mlp:
        subject.skip("attention and MLP work one after the other")
    yield from _sum_in_block(subject, "resid_pre", "attn_out", "mlp_out", "resid_post")


@FAMILY.law(
    reason="Nothing lies between blocks, so that a patch after one is a patch before the next.",
    mutant=shows("resid_pre", lambda x: x + 0.1),
)
def blocks_hand_the_stream_on(subject: TestSubject) -> Iterator[Comparison]:
    """The stream before a block is the stream after the block before it."""
    at = subject.clean.at
    for layer in subject.layers:
        point, before = subject.point("resid_pre", layer + 1), subject.point("resid_post", layer)
        if point in at and before in at:
            yield Comparison(point=point, got=at[point], wanted=at[before])


@FAMILY.law(
    reason="Direct logit attribution must sum to the logits; what is missing here is missing there.",
    mutant=shows("attn_out", lambda x: 0.9 * x),
    threads=("logit attribution on bridges of Gemma, Gemma 3 and OLMo 2",),
)
def the_last_stream_is_the_sum_of_all_that_is_written(subject: TestSubject) -> Iterator[Comparison]:
    """The first stream plus the outputs of all attentions and MLPs is the last stream."""
    if len(subject.layers) < subject.cfg.n_layers:
        subject.skip("not every layer of a deep model is looked at; its blocks are")
    subject.require("attn_out", "resid_pre", "resid_post")
    total = _values(subject, 0, "resid_pre")[0]
    for layer in subject.layers:
        total = total + _values(subject, layer, "attn_out")[0]
        if subject.point("mlp_out", layer) in subject.clean.at:
            total = total + _values(subject, layer, "mlp_out")[0]
    last = subject.layers[-1]
    yield Comparison(point=subject.point("resid_post", last), got=_values(subject, last, "resid_post")[0], wanted=total)


def _kind_of_norm(subject: TestSubject, *, final: bool = False) -> str:
    kind = subject.cfg.normalization_type or "none"
    return kind.replace("LN", "RMS") if final and getattr(subject.cfg, "final_rms", False) else kind


def normalise(x: Tensor, kind: str, eps: float, *, w: Tensor | None = None, b: Tensor | None = None) -> Tensor:
    """Rows normalised by a formula of ours, in double precision."""
    x = x.double()
    if kind == "none":
        return x
    x = x - x.mean(-1, keepdim=True) if kind.startswith("LN") else x
    x = x / (x.square().mean(-1, keepdim=True) + eps).sqrt()
    x = x if w is None else x * w.double()
    return x if b is None else x + b.double()


def _norm(subject: TestSubject, x: Tensor, name: str) -> Tensor:
    """Rows as the normalisation of this name leaves them, from its weights."""
    kind = _kind_of_norm(subject, final=name == "ln_final")
    has = {"w": kind in ("LN", "RMS"), "b": kind == "LN"}
    weights = {end: _weight(subject, f"{name}.{end}") for end in "wb" if has[end]}
    return normalise(x, kind, subject.cfg.eps, **weights)


def _capped(x: Tensor, cap: float | None) -> Tensor:
    return cap * torch.tanh(x / cap) if cap is not None and cap > 0 else x


@FAMILY.law(
    reason="Attribution and the logit lens read logits from the stream by the last norm and the unembedding.",
    mutant=shows("resid_post", lambda x: x + torch.linspace(-1, 1, x.shape[-1]).to(x)),
)
def logits_follow_from_the_last_stream(subject: TestSubject) -> Iterator[Comparison]:
    """The logits are the last stream, normalised, times the unembedding, plus its bias, and capped where they are."""
    last = subject.cfg.n_layers - 1
    if last not in subject.require("resid_post"):
        subject.skip("no run passes the last stream")
    weight, bias = (_weight(subject, f"unembed.{name}") for name in ("W_U", "b_U"))
    rows = _norm(subject, _values(subject, last, "resid_post")[0], "ln_final")
    logits = _capped(rows @ weight.double() + bias.double(), getattr(subject.cfg, "output_logits_soft_cap", None))
    yield Comparison(point="logits", got=subject.clean.logits, wanted=logits)


@FAMILY.law(
    reason="Logits are split into contributions, each read through the same linear map.",
    mutant=shows(f"ln_final.{NORMALIZED}", lambda x: x + 0.3 * x.square()),
)
def logits_are_linear_in_the_normalised_stream(subject: TestSubject) -> Iterator[Comparison]:
    """The mean of two normalised last streams gives the mean of their logits."""
    point = f"ln_final.{NORMALIZED}"
    if point not in subject.clean.at:
        subject.skip(f"no run passes {point}")
    if (getattr(subject.cfg, "output_logits_soft_cap", None) or 0) > 0:
        subject.skip("logits are capped")
    mean = (subject.clean.at[point] + subject.donor.at[point]) / 2
    run = subject.run(writes={point: mean}, reads=())
    yield Comparison(point=point, got=run.logits, wanted=(subject.clean.logits + subject.donor.logits) / 2)


@FAMILY.law(
    reason="Frozen scales and attributions divide by what hook_scale shows.",
    mutant=shows("ln1.hook_scale", lambda scale: 1.1 * scale),
    threads=("TransformerLens #1527",),
)
def norms_divide_by_their_scale(subject: TestSubject) -> Iterator[Comparison]:
    """Normalised rows are the stream, centred in LayerNorm, divided by the scale that is shown."""
    for layer in subject.layers:
        for norm, kind in (("ln1", "resid_pre"), ("ln2", "resid_mid")):
            names = [subject.point(each, layer) for each in (f"{norm}.hook_scale", f"{norm}.{NORMALIZED}", kind)]
            if any(name not in subject.clean.at for name in names):
                continue
            scale, rows, stream = (subject.clean.at[name].double() for name in names)
            stream = stream[:, :, None].expand_as(rows) if rows.ndim > 3 else stream  # a copy for each head
            if _kind_of_norm(subject).startswith("LN"):
                stream = stream - stream.mean(-1, keepdim=True)
            scale = scale.reshape(*stream.shape[:-1], -1)  # of models that run batch and positions as one axis
            yield Comparison(point=names[0], got=rows.view_as(stream), wanted=stream / scale)


@FAMILY.law(
    reason="Entropies, head scores and previous-token shares read a row as a distribution over keys.",
    mutant=always("pattern", lambda pattern: 0.9 * pattern),
    analyses=("attention-entropy",),
)
def pattern_rows_sum_to_one(subject: TestSubject) -> Iterator[Comparison]:
    """Every row of an attention pattern sums to one."""
    if has_linear_attention(subject.model) or attention_mix(subject.model) != 1:
        subject.skip("attention has no softmax alone")
    for layer in subject.require("pattern"):
        total = _values(subject, layer, "pattern")[0].sum(-1)
        yield Comparison(point=subject.point("pattern", layer), got=total, wanted=torch.ones_like(total))


@FAMILY.law(
    reason="A share of attention below zero, or above one, has no meaning.",
    mutant=always("pattern", lambda pattern: pattern - 0.2),
    analyses=("attention-entropy",),
)
def patterns_are_shares(subject: TestSubject) -> Iterator[Comparison]:
    """No entry of an attention pattern is below zero or above one."""
    if has_linear_attention(subject.model):
        subject.skip("attention has no softmax")
    for layer in subject.require("pattern"):
        (pattern,) = _values(subject, layer, "pattern")
        yield Comparison(point=subject.point("pattern", layer), got=pattern, wanted=pattern.clamp(0, 1))


@FAMILY.law(
    reason="A write at scores is understood as a write before the softmax.",
    mutant=shows("scores", lambda scores: 1.1 * scores),
    analyses=("attention-entropy",),
)
def patterns_are_the_softmax_of_scores(subject: TestSubject) -> Iterator[Comparison]:
    """A pattern is the softmax of its scores over the keys."""
    if has_linear_attention(subject.model) or attention_mix(subject.model) != 1:
        subject.skip("attention has no softmax alone")
    for layer in subject.require("scores", "pattern"):
        scores, pattern = _values(subject, layer, "scores", "pattern")
        wanted = scores.double().softmax(-1).nan_to_num()
        yield Comparison(point=subject.point("scores", layer), got=pattern, wanted=wanted)


@FAMILY.law(
    reason="The circuit of queries and keys is read as the bilinear form that makes the scores.",
    mutant=shows("q", lambda q: 1.1 * q),
)
def scores_are_products_of_queries_and_keys(subject: TestSubject) -> Iterator[Comparison]:
    """A visible score is the product of query and key, after rotation or with the vector of their distance, over the
    scale, and capped where it is.
    """
    cfg = subject.cfg
    if cfg.positional_embedding_type not in ("standard", "rotary") or getattr(cfg, "use_qk_norm", False):
        subject.skip("scores have other terms than the product")
    rotary = cfg.positional_embedding_type == "rotary"
    ends = ("attn.hook_rot_q", "attn.hook_rot_k") if rotary else ("q", "k")
    for layer in subject.require(*ends, "scores"):
        q, k, scores = _values(subject, layer, *ends, "scores")
        if (scale := _scale(subject, layer)) is None:
            subject.skip("the model does not say by what it divides scores")
        products = einsum(q.double(), by_head(k, q.shape[2]).double(), "b i h d, b j h d -> b h i j")
        if (vectors := _distance_vectors(subject, layer)) is not None:
            places = torch.arange(q.shape[1], device=q.device)
            products += relative_products(q.double().transpose(1, 2), vectors, places, k.shape[1])
        products = products / scale
        products = _capped(products, getattr(cfg, "attn_scores_soft_cap", None))
        got, wanted = (x.double().masked_fill(~visible(scores), 0) for x in (scores, products))
        yield Comparison(point=subject.point("scores", layer), got=got, wanted=wanted)


def _distance_vectors(subject: TestSubject, layer: int) -> Tensor | None:
    """The vectors of distances that keys carry, float64; None where they carry none."""
    vectors: Any = getattr(getattr(subject.model.blocks[layer], "attn", None), "W_rel", None)
    return None if vectors is None else vectors.detach().double()


def _scale(subject: TestSubject, layer: int) -> float | None:
    """The number by which scores are divided; None where the model does not say."""
    attention: Any = getattr(subject.model.blocks[layer], "attn", None)
    if has_linear_attention(subject.model):
        return 1.0
    scale: Any = getattr(attention, "attn_scale", getattr(subject.cfg, "attn_scale", None))
    if isinstance(scale, int | float) and scale < 0:  # a bridge's, for the usual one
        return float(subject.cfg.d_head) ** 0.5
    return float(scale) if isinstance(scale, int | float) or getattr(scale, "ndim", 1) == 0 else None


@FAMILY.law(
    reason="Attention weighted by values, and every head's output, is read from the pattern.",
    mutant=shows("z", lambda z: 1.1 * z),
)
def z_is_the_pattern_times_values(subject: TestSubject) -> Iterator[Comparison]:
    """The output z of a head is its values, mixed by its pattern."""
    for layer in subject.require("v", "pattern", "z"):
        v, pattern, z = _values(subject, layer, "v", "pattern", "z")
        yield Comparison(point=subject.point("z", layer), got=z, wanted=mixed(pattern, v))


@FAMILY.law(
    reason="The output of a head is its own z times its own W_O; blocks of the projected output are no heads.",
    mutant=shows("z", lambda z: z.flip(2)),
    threads=("a head-ablation script that reshapes the projected output",),
    analyses=("ablate", "edges"),
)
def attention_is_the_sum_of_its_heads(subject: TestSubject) -> Iterator[Comparison]:
    """The output of attention is the sum over heads of z times W_O, plus the bias."""
    _skip_norms_behind(subject, "attention")
    for layer in subject.require("z", "attn_out"):
        z, out = _values(subject, layer, "z", "attn_out")
        w, b = (_weight(subject, f"blocks.{layer}.attn.{name}") for name in ("W_O", "b_O"))
        total = einsum(z.double(), w.double(), "b i h d, h d m -> b i m") + b.double()
        yield Comparison(point=subject.point("attn_out", layer), got=out, wanted=total)


def _mean_of_two(subject: TestSubject, kind: str, end: str) -> Iterator[Comparison]:
    """In every block the mean of the values of two prompts leads to the mean of what each leads to."""
    for layer in subject.require(kind, end):
        names = point, following = subject.point(kind, layer), subject.point(end, layer)
        mean, wanted = ((subject.clean.at[name] + subject.donor.at[name]) / 2 for name in names)
        run = subject.run(writes={point: mean}, reads=(following,))
        yield Comparison(point=point, got=run.at[following], wanted=wanted)


@FAMILY.law(
    reason="Without weights this is what makes contributions of heads additive.",
    mutant=shows("z", lambda z: z + 0.3 * z.square()),
)
def attention_is_linear_in_z(subject: TestSubject) -> Iterator[Comparison]:
    """The mean of two prompts' z gives the mean of their outputs of attention."""
    _skip_norms_behind(subject, "attention")
    yield from _mean_of_two(subject, "z", "attn_out")


@FAMILY.law(
    reason="Contributions of neurons are additive only where the MLP's output is linear in them.",
    mutant=shows("post", lambda post: post + 0.3 * post.square()),
    analyses=("neurons",),
)
def the_mlp_is_linear_in_its_neurons(subject: TestSubject) -> Iterator[Comparison]:
    """The mean of two prompts' neurons, after the activation function, gives the mean of their outputs of the MLP."""
    _skip_norms_behind(subject, "the MLP")
    yield from _mean_of_two(subject, "post", "mlp_out")


@FAMILY.law(
    reason="What a neuron writes is read from its activation and its row of W_out.",
    mutant=shows("post", lambda post: 1.1 * post),
    analyses=("neurons",),
)
def the_mlp_is_the_sum_of_its_neurons(subject: TestSubject) -> Iterator[Comparison]:
    """The output of an MLP is its neurons times W_out, plus the bias."""
    _skip_norms_behind(subject, "the MLP")
    for layer in subject.require("post", "mlp_out"):
        post, out = _values(subject, layer, "post", "mlp_out")
        w, b = (_weight(subject, f"blocks.{layer}.mlp.{name}") for name in ("W_out", "b_out"))
        yield Comparison(point=subject.point("mlp_out", layer), got=out, wanted=post.double() @ w.double() + b.double())


@FAMILY.law(
    reason="A neuron is read before and after its activation function; gates multiply in between.",
    mutant=shows("pre", lambda pre: pre + 0.3),
    analyses=("neurons",),
)
def neurons_are_their_activation_function(subject: TestSubject) -> Iterator[Comparison]:
    """A neuron after is the activation function of the neuron before, times its linear part where MLPs are gated."""
    act = ACTIVATIONS.get(subject.cfg.act_fn or "")
    if act is None:
        subject.skip(f"the activation function {subject.cfg.act_fn} is not one of {', '.join(ACTIVATIONS)}")
    for layer in subject.require("pre", "post"):
        pre, post = _values(subject, layer, "pre", "post")
        wanted = act(pre)
        if (linear := subject.point("mlp.hook_pre_linear", layer)) in subject.clean.at:
            wanted = wanted * subject.clean.at[linear] + _weight(subject, f"blocks.{layer}.mlp.b_in")
        yield Comparison(point=subject.point("post", layer), got=post, wanted=wanted)


@FAMILY.law(
    reason="Weights of the MLP are read as what turns the normalised stream into neurons.",
    mutant=shows("pre", lambda pre: 1.1 * pre),
    analyses=("neurons",),
)
def neurons_read_the_normalised_stream(subject: TestSubject) -> Iterator[Comparison]:
    """A neuron before its activation function is the normalised stream times W_in (gated: W_gate), plus the bias."""
    parallel = subject.cfg.parallel_attn_mlp
    for layer in subject.require("pre", "resid_pre" if parallel else "resid_mid"):
        pre, stream = _values(subject, layer, "pre", "resid_pre" if parallel else "resid_mid")
        rows, name = _norm(subject, stream, f"blocks.{layer}.ln2"), f"blocks.{layer}.mlp"
        gated = bool(getattr(subject.cfg, "gated_mlp", False))
        w = _weight(subject, f"{name}.{'W_gate' if gated else 'W_in'}").double()
        wanted = rows @ w if gated else rows @ w + _weight(subject, f"{name}.b_in").double()
        yield Comparison(point=subject.point("pre", layer), got=pre, wanted=wanted)


@FAMILY.law(
    reason="Circuits of weights are read from the same projections that make queries, keys and values.",
    mutant=shows("v", lambda v: 1.1 * v),
)
def heads_read_the_normalised_stream(subject: TestSubject) -> Iterator[Comparison]:
    """Queries, keys and values are the normalised stream times their weights, plus their biases."""
    if getattr(subject.cfg, "clip_qkv", None) is not None:
        subject.skip("queries, keys and values are clipped")
    for layer in subject.require("resid_pre", "q", "k", "v"):
        rows = _norm(subject, _values(subject, layer, "resid_pre")[0], f"blocks.{layer}.ln1")
        for kind in "qkv":
            (activation,) = _values(subject, layer, kind)
            shared = "_" if kind != "q" and activation.shape[2] < subject.cfg.n_heads else ""
            name = f"blocks.{layer}.attn.{shared}"
            w, b = (_weight(subject, f"{name}{end}_{kind.upper()}").double() for end in "Wb")
            wanted = einsum(rows, w, "b i m, h m d -> b i h d") + b
            yield Comparison(point=subject.point(kind, layer), got=activation, wanted=wanted)
