"""Texts of the own hooked transformer, against TransformerLens's where it is installed."""

import pytest
import torch
from transformers import AutoTokenizer

from mnemoscope.core.errors import InputError
from mnemoscope.models.building import silence_deprecation
from mnemoscope.models.hooked.config import HookedTransformerConfig
from mnemoscope.models.hooked.transformer import HookedTransformer
from mnemoscope.models.lens import HAS_HOOKED_TRANSFORMER
from tests.language_models import N_TOKENS, tokenizer

TEXTS = ["John and Mary went", "cat sat on mat one two"]
_SIZES = {"n_layers": 1, "d_model": 4, "n_heads": 1, "d_head": 4, "n_ctx": 8, "d_vocab": N_TOKENS}


@pytest.fixture
def make(tmp_path):
    """A model with a tokenizer that was read from a file, as TransformerLens needs it."""
    tokenizer().save_pretrained(tmp_path)

    def made(kind=HookedTransformer, config=HookedTransformerConfig):
        with silence_deprecation():
            return kind(config(**_SIZES, device="cpu", act_fn="relu"), AutoTokenizer.from_pretrained(tmp_path))

    return made


@pytest.fixture
def ours(make):
    return make()


def test_a_text_and_its_tokens(ours):
    tokens = ours.to_tokens(TEXTS[0])
    assert tokens[0, 0] == ours.tokenizer.bos_token_id
    assert ours.to_tokens(TEXTS[0], prepend_bos=False).equal(tokens[:, 1:])
    assert ours.to_str_tokens(TEXTS[0], prepend_bos=False) == TEXTS[0].split()
    assert ours.to_string(tokens[0, 1:]) == TEXTS[0]
    assert ours.to_single_str_token(ours.to_single_token("cat")) == "cat"
    with pytest.raises(InputError, match="must be one token; got 'cat dog', which is 2"):
        ours.to_single_token("cat dog")


def test_a_text_gives_the_logits_of_its_tokens(ours):
    assert ours(TEXTS[0]).equal(ours(ours.to_tokens(TEXTS[0])))


@pytest.mark.skipif(not HAS_HOOKED_TRANSFORMER, reason="TransformerLens 4 has no HookedTransformer")
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("prepend_bos", [True, False])
def test_tokens_and_padding_are_transformer_lenss(make, side, prepend_bos):
    from transformer_lens import HookedTransformer as Theirs
    from transformer_lens import HookedTransformerConfig as TheirConfig

    ours, reference = make(), make(Theirs, TheirConfig)
    ours.load_state_dict(reference.state_dict(), strict=True)
    options = {"prepend_bos": prepend_bos, "padding_side": side}
    assert ours.to_tokens(TEXTS, **options).equal(reference.to_tokens(TEXTS, **options))
    assert ours.to_str_tokens(TEXTS, prepend_bos) == reference.to_str_tokens(TEXTS, prepend_bos)
    assert ours.to_tokens("cat " * 20).equal(reference.to_tokens("cat " * 20))
    assert torch.equal(ours(TEXTS, **options), reference(TEXTS, **options))
    assert ours.cfg.tokenizer_prepends_bos == reference.cfg.tokenizer_prepends_bos
