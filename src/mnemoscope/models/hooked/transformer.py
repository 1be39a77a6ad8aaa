"""`HookedTransformer` for releases of TransformerLens that no longer have one (4.0 and later).

The parameters, buffers, hooks, configuration, random draws and numbers are those of TransformerLens 3.9, to the last
bit (tested against it where it is installed). Not here are `generate`, `from_pretrained` (`ms.language_model` loads
language models), four-bit weights, and more than one device. Nor are these parts: mixtures of experts, attention sinks,
rotary schemes other than the usual one and Llama 3.1's, and blocks that normalise only their outputs.
"""

from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mnemoscope.core.errors import InputError, one_of
from mnemoscope.engine.pointwise import apply_soft_cap
from mnemoscope.models.hooked.blocks import TransformerBlock
from mnemoscope.models.hooked.config import HookedTransformerConfig
from mnemoscope.models.hooked.layers import Embed, PosEmbed, Unembed, normalisation
from mnemoscope.models.hooked.points import HookedModule, HookPoint
from mnemoscope.models.hooked.text import Texts
from mnemoscope.models.hooked.weights import Processing, Weights
from mnemoscope.models.lens import TransformerLensKeyValueCache

_GATED = {
    "attn.hook_result": "use_attn_result",
    "hook_q_input": "use_split_qkv_input",
    "hook_k_input": "use_split_qkv_input",
    "hook_v_input": "use_split_qkv_input",
    "hook_mlp_in": "use_hook_mlp_in",
    "hook_attn_in": "use_attn_in",
}
"""Hooks that fire only where a field of the configuration says so."""


class Output(NamedTuple):
    """Logits and loss."""

    logits: Float[Tensor, "batch pos d_vocab"]
    loss: Tensor


class ActivationCache(dict[str, Tensor]):
    """Activations by hook point; every other key or method is passed on to TransformerLens's own cache of them."""

    def __init__(self, activations: dict[str, Tensor], model: Any, has_batch_dim: bool):
        super().__init__(activations)
        self.model, self.has_batch_dim = model, has_batch_dim

    def __missing__(self, key: Any) -> Tensor:
        return self._theirs()[key]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._theirs(), name)

    def _theirs(self) -> Any:
        from transformer_lens import ActivationCache as Theirs

        return Theirs(dict(self), self.model, has_batch_dim=self.has_batch_dim)


class HookedTransformer(Texts, Weights, Processing, HookedModule):
    """A transformer with a hook at every activation."""

    STANDS_FOR: ClassVar = "transformer_lens.HookedTransformer.HookedTransformer"
    """Its name in registrations of claims, which is the same with 3.9 and with 4."""

    def __init__(
        self,
        cfg: HookedTransformerConfig | dict[str, Any],
        tokenizer: Any = None,
        move_to_device: bool = True,
        default_padding_side: str | None = None,
    ):
        super().__init__()
        self.cfg = cfg = HookedTransformerConfig.from_dict(cfg) if isinstance(cfg, dict) else cfg
        self.tokenizer = None
        if tokenizer is not None:
            self.set_tokenizer(tokenizer, default_padding_side)
        self.embed, self.hook_embed = Embed(cfg), HookPoint()
        if cfg.positional_embedding_type != "rotary":
            self.pos_embed, self.hook_pos_embed = PosEmbed(cfg), HookPoint()
        if cfg.use_hook_tokens:
            self.hook_tokens = HookPoint()
        self.blocks = nn.ModuleList([TransformerBlock(cfg, layer) for layer in range(cfg.n_layers)])
        if cfg.normalization_type is not None:
            self.ln_final = normalisation(cfg, final=True)
        self.unembed = Unembed(cfg)
        if cfg.init_weights:
            self.init_weights()
        if move_to_device:
            self.to(cfg.device, print_details=False)
        self.setup()

    def init_weights(self) -> None:
        """Draw the weights as for GPT-2, from the global generator, which the configuration's seed sets if given."""
        if self.cfg.seed is not None:
            torch.manual_seed(self.cfg.seed)
        for name, value in self.named_parameters():
            if "W_" in name:
                nn.init.normal_(value, std=self.cfg.initializer_range)

    def forward(
        self,
        input: Any,
        return_type: str | None = "logits",
        loss_per_token: bool = False,
        prepend_bos: Any = None,
        padding_side: Any = None,
        start_at_layer: int | None = None,
        tokens: Int[Tensor, "batch pos"] | None = None,
        shortformer_pos_embed: Float[Tensor, "batch pos d_model"] | None = None,
        attention_mask: Int[Tensor, "batch pos"] | None = None,
        stop_at_layer: int | None = None,
        past_kv_cache: TransformerLensKeyValueCache | None = None,
    ) -> Any:
        """Run the model.

        Args:
            input: Tokens, texts or input vectors; with `start_at_layer`, the residual stream.
            return_type: "logits", "loss" (of the next token, in nats), "both", or None: nothing.
            loss_per_token: True for a loss at every position; False for the mean.
            prepend_bos: For texts; None: as configured.
            padding_side: For texts; None: the tokenizer's.
            start_at_layer: First layer that is run; None: embeddings and all layers.
            tokens: Tokens for the loss, with `start_at_layer`.
            shortformer_pos_embed: Positions with `start_at_layer`, for models that keep them out of the stream.
            attention_mask: 1 for tokens, 0 for padding.
            stop_at_layer: First layer that is not run; the residual stream before it is returned. None: run all.
            past_kv_cache: Keys and values of earlier positions; unless frozen, it takes up the new ones.
        """
        one_of("return_type", return_type, ("logits", "loss", "both", None))
        with self._defaults(prepend_bos, padding_side):
            if start_at_layer is None:
                residual, tokens, shortformer_pos_embed, attention_mask = self.input_to_embed(
                    input, prepend_bos, padding_side, attention_mask, past_kv_cache
                )
            else:
                residual = input
            for layer in range(self.cfg.n_layers)[start_at_layer:stop_at_layer]:
                entry = None if past_kv_cache is None else past_kv_cache[layer]
                residual = self.blocks[layer](residual, shortformer_pos_embed, entry, attention_mask)
            if stop_at_layer is not None:
                return residual
            if self.cfg.normalization_type is not None:
                residual = self.ln_final(residual)
            if return_type is None:
                return None
            logits = apply_soft_cap(self.unembed(residual), self.cfg.output_logits_soft_cap)
            if return_type == "logits":
                return logits
            loss = self.loss_fn(logits, tokens, attention_mask, loss_per_token)
            return loss if return_type == "loss" else Output(logits, loss)

    def input_to_embed(
        self,
        input: Any,
        prepend_bos: Any = None,
        padding_side: Any = None,
        attention_mask: Int[Tensor, "batch pos"] | None = None,
        past_kv_cache: TransformerLensKeyValueCache | None = None,
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """The stream before the first layer, the tokens, any positions outside the stream, and the whole mask."""
        tokens = self.to_tokens(input, prepend_bos, padding_side) if isinstance(input, str | list) else input
        tokens = (tokens[None] if tokens.ndim == 1 else tokens).to(self.W_E.device)
        left = self.tokenizer is not None and self.tokenizer.padding_side == "left"
        if attention_mask is None and (left or past_kv_cache is not None):
            if self.tokenizer is None:
                raise InputError("attention_mask must be given with a cache where the model has no tokenizer")
            from transformer_lens.utilities.tokenize_utils import get_attention_mask

            bos = self.cfg.default_prepend_bos if prepend_bos is None else prepend_bos
            attention_mask = get_attention_mask(self.tokenizer, tokens, bos)
        offset = 0
        if past_kv_cache is not None and attention_mask is not None:
            attention_mask = past_kv_cache.append_attention_mask(attention_mask)
            offset = past_kv_cache[0].past_keys.shape[1]
        if self.cfg.use_hook_tokens:
            tokens = self.hook_tokens(tokens)
        residual = self.hook_embed(self.embed(tokens))
        if self.cfg.positional_embedding_type not in ("standard", "shortformer"):
            return residual, tokens, None, attention_mask
        places = self.hook_pos_embed(self.pos_embed(tokens, offset, attention_mask))
        if self.cfg.positional_embedding_type == "standard":
            return residual + places, tokens, None, attention_mask
        return residual, tokens, places, attention_mask

    def loss_fn(
        self, logits: Tensor, tokens: Tensor | None, attention_mask: Tensor | None = None, per_token: bool = False
    ) -> Tensor:
        """Cross-entropy of the next token, in nats."""
        if tokens is None:
            raise InputError("tokens must be given for the loss of a run that starts at a layer")
        from transformer_lens.utilities.lm_utils import lm_cross_entropy_loss

        return lm_cross_entropy_loss(logits, tokens, attention_mask, per_token)

    def run_with_cache(
        self, *model_args: Any, return_cache_object: bool = True, remove_batch_dim: bool = False, **kwargs: Any
    ) -> tuple[Any, Any]:
        """The output, and activations by the names of their hook points."""
        output, cache = super().run_with_cache(*model_args, remove_batch_dim=remove_batch_dim, **kwargs)
        return output, ActivationCache(cache, self, not remove_batch_dim) if return_cache_object else cache

    def check_hooks_to_add(self, hook_point: Any, hook_point_name: str, *_: Any, **__: Any) -> None:
        """Refuse hooks that would never be called."""
        for end, field in _GATED.items():
            if hook_point_name.endswith(end) and not getattr(self.cfg, field):
                raise AssertionError(f"Cannot add hook {hook_point_name} if {field} is False")

    def to(self, device_or_dtype: Any, print_details: bool = True) -> Any:  # pyright: ignore
        """Move to a device or a precision, and note it in the configuration."""
        if isinstance(device_or_dtype, torch.dtype):
            self.cfg.dtype = device_or_dtype
        else:
            self.cfg.device = getattr(device_or_dtype, "type", device_or_dtype)
        if print_details:
            print(f"Moving the model to {device_or_dtype}")
        return nn.Module.to(self, device_or_dtype)

    def set_use_attn_result(self, use_attn_result: bool) -> None:
        """Switch the computation and the hook of each head's result on or off."""
        self.cfg.use_attn_result = use_attn_result

    def set_use_split_qkv_input(self, use_split_qkv_input: bool) -> None:
        """Switch separate, hooked inputs for the queries, keys and values of each head on or off."""
        self.cfg.use_split_qkv_input = use_split_qkv_input

    def set_use_hook_mlp_in(self, use_hook_mlp_in: bool) -> None:
        """Switch the hook at the input of each MLP on or off."""
        self.cfg.use_hook_mlp_in = use_hook_mlp_in

    def set_use_attn_in(self, use_attn_in: bool) -> None:
        """Switch a separate, hooked input for each head on or off."""
        self.cfg.use_attn_in = use_attn_in

    def set_ungroup_grouped_query_attention(self, ungroup_grouped_query_attention: bool) -> None:
        """Switch between shared keys and values, and copies of them computed and hooked for each head."""
        self.cfg.ungroup_grouped_query_attention = ungroup_grouped_query_attention
