"""A run as a directory for those without this library, also as a GPT-2 of `transformers` where that can hold it.

`config.json` holds arguments of TransformerLens's `HookedTransformerConfig`; `model.safetensors` the weights, also a
checkpoint of this library; `README.md` a model card: what was trained on what, how well, and how to load it;
`transformers/` the same as a GPT-2, where that architecture can hold it exactly.

GPT-2 has learned positions, pre-norm blocks with LayerNorm, softmax attention over the past and heads that divide its
width. Its unembedding has no bias: one is moved into the bias of the last LayerNorm, b' = b + b_U W_U⁺, which changes
no logit where the columns of W_U are independent. A model without MLPs gets MLPs of one neuron that write zero.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from einops import rearrange
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.utils.logging import disable_progress_bar

from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import attention_mix, has_linear_attention, masked_token, position_kind, reads_vectors
from mnemoscope.models.checkpoint import configuration_of, save_checkpoint
from mnemoscope.models.files import write_atomically
from mnemoscope.models.lens import HookedTransformer
from mnemoscope.models.run import Run

_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_new"}
"""TransformerLens's names and those of `transformers`."""
TOLERANCE = 1e-4
"""The largest difference of a logit."""


def as_gpt2(model: HookedTransformer) -> GPT2LMHeadModel:
    """The same model for `transformers`; logits differ by rounding only, which is checked on random tokens.

    Raises InputError where GPT-2's architecture cannot hold the model; the reasons are named.
    """
    if reasons := obstacles(model):
        raise InputError(f"GPT-2's architecture cannot hold this model: {'; '.join(reasons)}")
    result = GPT2LMHeadModel(_configuration(model)).to(model.cfg.dtype)
    result.load_state_dict(_weights(model), strict=True)
    result.eval()
    drawn = torch.Generator().manual_seed(0)
    tokens = torch.randint(model.cfg.d_vocab, (4, model.cfg.n_ctx), generator=drawn)
    with torch.no_grad():
        furthest = float((result(tokens).logits - model(tokens.to(model.cfg.device)).cpu()).abs().max())
    if not furthest <= TOLERANCE:
        raise InputError(f"GPT-2's architecture cannot hold this model: logits differ by {furthest:.2g}")
    return result


def obstacles(model: HookedTransformer) -> list[str]:
    """Why GPT-2's architecture cannot hold a model; nothing where it can, up to rounding."""
    cfg = model.cfg
    reasons = {
        "it reads vectors": reads_vectors(model),
        "its attention is linear": has_linear_attention(model),
        "its attention is mixed with a constant": attention_mix(model) < 1,
        "it masks a token": masked_token(model) is not None,
        f"its normalization is {cfg.normalization_type or 'none'}, not LN": cfg.normalization_type != "LN",
        "its attention is bidirectional": cfg.attention_dir != "causal",
        f"its positions are {position_kind(model)}": position_kind(model) != "standard",
        "it shares keys and values among heads": (cfg.n_key_value_heads or cfg.n_heads) != cfg.n_heads,
        "its MLPs are gated": cfg.gated_mlp,
        "attention and MLP are parallel": cfg.parallel_attn_mlp,
        "its heads do not divide its width": cfg.n_heads * cfg.d_head != cfg.d_model,
        f"it predicts {cfg.d_vocab_out} of {cfg.d_vocab} tokens": cfg.d_vocab_out != cfg.d_vocab,
        f"its activation function is {cfg.act_fn}": not cfg.attn_only and cfg.act_fn not in _ACTIVATIONS,
    }
    found = [reason for reason, holds in reasons.items() if holds]
    if not found and model.b_U.any() and int(torch.linalg.matrix_rank(model.W_U.double())) < cfg.d_vocab:
        found.append("its unembedding has a bias that GPT-2 lacks and no other weight can take over")
    return found


def _configuration(model: HookedTransformer) -> GPT2Config:
    cfg = model.cfg
    return GPT2Config(
        vocab_size=cfg.d_vocab,
        n_positions=cfg.n_ctx,
        n_embd=cfg.d_model,
        n_layer=cfg.n_layers,
        n_head=cfg.n_heads,
        n_inner=1 if cfg.attn_only else cfg.d_mlp,
        activation_function="relu" if cfg.attn_only else _ACTIVATIONS[str(cfg.act_fn)],
        layer_norm_epsilon=cfg.eps,
        scale_attn_weights=cfg.use_attn_scale,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
        tie_word_embeddings=False,
    )


def _weights(model: HookedTransformer) -> dict[str, Tensor]:
    """The state of the GPT-2; its linear maps are stored as (input, output)."""
    state = dict(model.named_parameters())
    bias = state["ln_final.b"].double() + model.b_U.double() @ torch.linalg.pinv(model.W_U.double())
    weights = {
        "transformer.wte.weight": model.W_E,
        "transformer.wpe.weight": model.W_pos,
        "transformer.ln_f.weight": state["ln_final.w"],
        "transformer.ln_f.bias": bias.to(model.cfg.dtype),
        "lm_head.weight": model.W_U.T,
    }
    for layer in range(model.cfg.n_layers):
        own = {name: state.get(f"blocks.{layer}.{name}") for name in _PARTS}
        block = _block({name: value for name, value in own.items() if value is not None})
        weights |= {f"transformer.h.{layer}.{name}": value for name, value in block.items()}
    return {name: value.detach().cpu().contiguous().clone() for name, value in weights.items()}


_PARTS = (
    *(f"attn.{kind}_{part}" for kind in "Wb" for part in "QKVO"),
    *(f"ln{number}.{kind}" for number in (1, 2) for kind in "wb"),
    *(f"mlp.{kind}_{part}" for kind in "Wb" for part in ("in", "out")),
)
"""Parameters of a block by TransformerLens's names."""


def _block(of: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """One block under the names of `transformers`."""
    reads = [rearrange(of[f"attn.W_{part}"], "head d_model d_head -> d_model (head d_head)") for part in "QKV"]
    found = {
        "ln_1.weight": of["ln1.w"],
        "ln_1.bias": of["ln1.b"],
        "attn.c_attn.weight": torch.cat(reads, 1),
        "attn.c_attn.bias": torch.cat([of[f"attn.b_{part}"].flatten() for part in "QKV"]),
        "attn.c_proj.weight": rearrange(of["attn.W_O"], "head d_head d_model -> (head d_head) d_model"),
        "attn.c_proj.bias": of["attn.b_O"],
    }
    if "mlp.W_in" in of:
        return {
            **found,
            "ln_2.weight": of["ln2.w"],
            "ln_2.bias": of["ln2.b"],
            "mlp.c_fc.weight": of["mlp.W_in"],
            "mlp.c_fc.bias": of["mlp.b_in"],
            "mlp.c_proj.weight": of["mlp.W_out"],
            "mlp.c_proj.bias": of["mlp.b_out"],
        }
    width = len(of["ln1.w"])
    shapes = {"c_fc.weight": (width, 1), "c_fc.bias": (1,), "c_proj.weight": (1, width), "c_proj.bias": (width,)}
    silent = {f"mlp.{name}": torch.zeros(shape) for name, shape in shapes.items()}
    return {**found, "ln_2.weight": torch.ones(width), "ln_2.bias": torch.zeros(width), **silent}


_PLAIN = """import json

import torch
from safetensors.torch import load_file
from transformer_lens import HookedTransformer, HookedTransformerConfig

with open("config.json") as file:
    config = json.load(file)
config["dtype"] = getattr(torch, config["dtype"])
model = HookedTransformer(HookedTransformerConfig(**config))
model.load_state_dict(load_file("model.safetensors"))
model.eval()
"""
_OWN = """from pathlib import Path

from mnemoscope.models.checkpoint import load_checkpoint

model = load_checkpoint(Path("model.safetensors"))
"""
_GPT2 = """from transformers import GPT2LMHeadModel

model = GPT2LMHeadModel.from_pretrained("transformers")
"""
_TAGS = ("mechanistic-interpretability", "transformer-lens", "mnemoscope")


def model_card(run: Run, step: int, *, plain: bool, against: Sequence[str]) -> str:
    """A model card in Markdown of a run at a checkpoint.

    `plain` models fit a `HookedTransformer` of TransformerLens 3.9 alone. `against` gives the reasons why GPT-2's
    architecture cannot hold the model, none where it can.
    """
    spec = run.spec
    head = ["---", "library_name: transformer-lens", "tags:", *(f"- {tag}" for tag in _TAGS), "---"]
    parts = [
        "\n".join(head),
        f"# {run.label}, seed {spec.seed}",
        f"A small transformer trained on the task {spec.task.name} for {step:,} steps (preset {spec.preset}, recipe "
        f"{spec.recipe.name}), exported by mnemoscope.",
        "## Loading",
        f"With mnemoscope, on any line of TransformerLens from 3.9 on:\n\n{_code(_OWN)}",
    ]
    if plain:
        parts.append(f"With TransformerLens 3.9 alone (4.0 has no `HookedTransformer`):\n\n{_code(_PLAIN)}")
    if against:
        parts.append(f"`transformers` cannot load it: {'; '.join(against)}.")
    else:
        parts.append(f"As a GPT-2 of `transformers`, with the same logits up to rounding:\n\n{_code(_GPT2)}")
    if measured := _measured(run, step):
        parts += ["## Evaluation", "On monitoring batches, as training logged it; losses in nats.", measured]
    parts += ["## Specification", _code(json.dumps(spec.to_dict(), indent=2), "json")]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _code(text: str, language: str = "python") -> str:
    return f"```{language}\n{text.strip()}\n```"


def _measured(run: Run, step: int) -> str:
    """The metrics of the step as a table; nothing where none were logged then."""
    try:
        metrics = run.metrics()
    except InputError:
        return ""
    if step not in metrics.step.values:
        return ""
    line = metrics.sel(step=step)
    rows = [f"| {name} | {float(value):.4g} |" for name, value in line.data_vars.items()]
    return "\n".join(["| metric | value |", "|---|---|", *rows])


WEIGHTS, CONFIGURATION, CARD, GPT2 = "model.safetensors", "config.json", "README.md", "transformers"


def export_run(run: Run, place: Path, *, step: int | None = None) -> list[str]:
    """Write one checkpoint of a run to a directory; what an earlier export left there is replaced.

    The run may be unfinished but has a checkpoint; without `step` its last is written. The directory is made. Raises
    InputError where there is no such checkpoint, or the directory holds something else.

    Returns a sentence for each reason why other libraries cannot load it; nothing where they can.
    """
    if place.exists() and not place.is_dir():
        raise InputError(f"{place} is a file; name a directory")
    foreign = (
        {file.name for file in place.iterdir()} - {WEIGHTS, CONFIGURATION, CARD, GPT2} if place.exists() else set()
    )
    if foreign:
        raise InputError(f"{place} holds something else ({min(foreign)}); name an empty directory")
    model = run.model(step)
    step = run.steps[-1] if step is None else step
    kinds = {
        "reads vectors": reads_vectors(model),
        "has linear attention": has_linear_attention(model),
        "has attention mixed with a constant": attention_mix(model) < 1,
        "masks a token": masked_token(model) is not None,
        "has relative positions": position_kind(model) == "relative",
        "has linear MLPs": model.cfg.act_fn == "identity",
    }
    own = [what for what, holds in kinds.items() if holds]
    sentences = [f"a plain HookedTransformer cannot hold it: it {' and '.join(own)}"] if own else []
    against = obstacles(model)
    sentences += [f"GPT-2's architecture cannot hold it: {'; '.join(against)}"] if against else []
    save_checkpoint(model, place / WEIGHTS, step=step)
    config = json.dumps(configuration_of(model.cfg), indent=2)
    write_atomically(place / CONFIGURATION, (config + "\n").encode())
    shutil.rmtree(place / GPT2, ignore_errors=True)
    if not against:
        disable_progress_bar()
        as_gpt2(model).save_pretrained(place / GPT2)
    write_atomically(place / CARD, model_card(run, step, plain=not own, against=against).encode())
    return sentences
