import pytest

from mnemoscope.core.errors import InputError
from mnemoscope.core.site import WEIGHTS, ParamSite

EMBEDDINGS = ("W_E", "W_pos", "W_U", "b_U")


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_weight_is_read_from_either_of_its_names(name):
    site = ParamSite(name=name, layer=None if name in EMBEDDINGS else 11)
    assert ParamSite.read(str(site)) == ParamSite.read(site.parameter) == site


def test_a_weight_of_one_head():
    assert ParamSite.read("L1H10 W_O") == ParamSite(name="W_O", layer=1, head=10)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "must look like L1 W_out, L1H0 W_O, W_E or blocks.1.mlp.W_out; got ''"),
        ("L1-W_out", "must look like"),
        ("blocks.1.attn.W_out", "perhaps blocks.1.mlp.W_out"),
        ("embed.W_U", "perhaps unembed.W_U"),
        ("W_out", "names its layer"),
        ("L1H0 W_in", "not divided among heads"),
        ("L1 W_gate", "must be one of: W_E"),
    ],
)
@pytest.mark.usefixtures("as_installed")
def test_what_is_no_weight(text, named):
    with pytest.raises(InputError, match=named):
        ParamSite.read(text)
