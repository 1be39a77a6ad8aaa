"""Turns texts into tokens and back as TransformerLens does, with a tokenizer of the transformers library."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from mnemoscope.core.errors import InputError


class Texts(nn.Module):
    """A model that may have a tokenizer.

    Where `prepend_bos` and `padding_side` are None, those of the configuration and the tokenizer hold.
    """

    cfg: Any
    tokenizer: Any

    def set_tokenizer(self, tokenizer: Any, default_padding_side: str | None = None) -> None:
        """Use this tokenizer, and add the special tokens that it lacks."""
        from transformer_lens.utilities.tokenize_utils import get_tokenizer_with_bos

        self.tokenizer = get_tokenizer_with_bos(tokenizer)
        self.tokenizer.padding_side = default_padding_side or self.tokenizer.padding_side or "right"
        self.cfg.tokenizer_prepends_bos = len(self.tokenizer.encode("")) > 0
        self.tokenizer.eos_token = self.tokenizer.eos_token or "<|endoftext|>"
        self.tokenizer.pad_token = self.tokenizer.pad_token or self.tokenizer.eos_token
        self.tokenizer.bos_token = self.tokenizer.bos_token or self.tokenizer.eos_token
        if self.cfg.d_vocab == -1:
            self.cfg.d_vocab = max(self.tokenizer.get_vocab().values()) + 1
        if self.cfg.d_vocab_out == -1:
            self.cfg.d_vocab_out = self.cfg.d_vocab

    def _defaults(self, prepend_bos: bool | None, padding_side: str | None) -> AbstractContextManager[Any]:
        """A context in which these replace the model's own settings; None leaves a setting."""
        if prepend_bos is None and padding_side is None:
            return nullcontext()
        from transformer_lens.utilities.defaults_utils import LocallyOverridenDefaults

        return LocallyOverridenDefaults(self, prepend_bos=prepend_bos, padding_side=padding_side)

    def to_tokens(
        self,
        input: str | list[str],
        prepend_bos: Any = None,
        padding_side: Any = None,
        move_to_device: bool = True,
        truncate: bool = True,
    ) -> Int[Tensor, "batch pos"]:
        """Tokens of one text or of several; raises InputError without a tokenizer."""
        if self.tokenizer is None:
            raise InputError("the model has no tokenizer; give tokens, or set one with set_tokenizer")
        from transformer_lens.utilities import tokenize_utils as utils

        with self._defaults(prepend_bos, padding_side):
            wanted, given = self.cfg.default_prepend_bos, self.cfg.tokenizer_prepends_bos
            if wanted and not given:
                input = utils.get_input_with_manually_prepended_bos(self.tokenizer.bos_token, input)
            longest = self.cfg.n_ctx if truncate else None
            found = self.tokenizer(input, return_tensors="pt", padding=True, truncation=truncate, max_length=longest)
            tokens = found["input_ids"]
            if given and not wanted:
                tokens = utils.get_tokens_with_bos_removed(self.tokenizer, tokens)
            return tokens.to(self.cfg.device) if move_to_device else tokens

    def to_string(self, tokens: Any) -> str | list[str]:
        """The text of a row of tokens, or of several."""
        tokens = torch.as_tensor(tokens)
        decode = self.tokenizer.batch_decode if tokens.ndim == 2 else self.tokenizer.decode
        return decode(tokens, clean_up_tokenization_spaces=False)

    def to_str_tokens(self, input: Any, prepend_bos: Any = None, padding_side: Any = None) -> list[Any]:
        """Each token of a text, or of a row of tokens, as text; for a list of these, a list of such lists."""
        if isinstance(input, list):
            return [self.to_str_tokens(one, prepend_bos, padding_side) for one in input]
        tokens = self.to_tokens(input, prepend_bos, padding_side)[0] if isinstance(input, str) else input
        rows = [[int(token)] for token in torch.as_tensor(tokens).flatten()]
        return self.tokenizer.batch_decode(rows, clean_up_tokenization_spaces=False)

    def to_single_token(self, string: str) -> int:
        """The number of a text that is one token; raises InputError for any other text."""
        tokens = self.to_tokens(string, prepend_bos=False).flatten()
        if len(tokens) != 1:
            raise InputError(f"string must be one token; got {string!r}, which is {len(tokens)}")
        return int(tokens[0])

    def to_single_str_token(self, int_token: int) -> str:
        """The text of one token."""
        return self.to_str_tokens(torch.tensor([int_token]))[0]
