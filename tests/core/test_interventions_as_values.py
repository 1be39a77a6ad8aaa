import pytest
import torch

from mnemoscope.core.batch import Named
from mnemoscope.core.errors import InputError
from mnemoscope.core.intervention import Add, Knockout, LowRank, Mean, Patch, Project, SetPattern, Zero
from mnemoscope.core.patterns import Mechanism
from mnemoscope.core.site import KINDS, WEIGHTS, ParamSite, Site
from tests.support import seeded, small_spec

TASK = small_spec().task
BATCH = Named(name="reference", value=TASK.sample(4, split="train", generator=seeded()))
HEAD, PATTERN = Site(kind="z", layer=0, head=1), Site(kind="pattern", layer=0, head=1)
VECTOR = Named(name="direction", value=torch.ones(4))
EVEN = Mechanism(name="even", pattern=lambda batch: torch.ones(1, 1, 1))


@pytest.mark.parametrize(
    ("fields", "text", "hook"),
    [
        ({"kind": "z", "layer": 0, "head": 1}, "L0H1", "blocks.0.attn.hook_z"),
        ({"kind": "mlp_out", "layer": 2}, "L2 MLP", "blocks.2.hook_mlp_out"),
        ({"kind": "embed"}, "embed", "hook_embed"),
        ({"kind": "resid_mid", "layer": 1, "pos": -1}, "L1 resid_mid pos -1", "blocks.1.hook_resid_mid"),
        ({"kind": "post", "layer": 0, "neuron": 3}, "L0 post neuron 3", "blocks.0.mlp.hook_post"),
        (
            {"kind": "scores", "layer": 0, "head": 1, "pos": 8, "key": "source_pos"},
            "L0H1 scores query 8 key source_pos",
            "blocks.0.attn.hook_attn_scores",
        ),
        ({"kind": "z", "layer": 0}, "L0 z", "blocks.0.attn.hook_z"),
    ],
)
def test_a_site_has_a_name_and_a_hook_point(fields, text, hook):
    assert (str(Site(**fields)), Site(**fields).hook) == (text, hook)
    assert Site(**fields) == Site(**fields)
    assert hash(Site(**fields)) == hash(Site(**fields))


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "nonsense", "layer": 0}, "the kind of a site must be one of: embed, .*; got 'nonsense'"),
        ({"kind": "embed", "layer": 0}, "a site names its layer, save embed and pos_embed"),
        ({"kind": "z"}, "a site names its layer"),
        ({"kind": "resid_pre", "layer": 0, "head": 1}, "resid_pre has no head; kinds that have one: q, k, v, z"),
        ({"kind": "z", "layer": 0, "neuron": 1}, "z has no neuron; kinds that have one: pre, post"),
        ({"kind": "z", "layer": 0, "key": 1}, "z has no key; kinds that have one: scores, pattern"),
        ({"kind": "z", "layer": -1}, "the layer of a site must be at least 0; got -1"),
        ({"kind": "post", "layer": 0, "neuron": (1, -1)}, "the neuron of a site must be at least 0; got -1"),
    ],
)
def test_an_impossible_site_cannot_be_built(fields, message):
    with pytest.raises(InputError, match=message):
        Site(**fields)


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "W_X"}, "the name of a weight must be one of: W_E"),
        ({"name": "W_E", "layer": 0}, "a weight names its layer, save W_E, W_pos, W_U, b_U"),
        ({"name": "W_in", "layer": 0, "head": 0}, "W_in is not divided among heads; leave head out"),
        ({"name": "W_Q", "layer": 0, "head": -1}, "the head of a weight must be at least 0"),
    ],
)
def test_an_impossible_weight_cannot_be_built(fields, message):
    with pytest.raises(InputError, match=message):
        ParamSite(**fields)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Mean(site=PATTERN, source=BATCH, over="position"), "L0H1 pattern has other keys at every position"),
        (lambda: SetPattern(site=HEAD, mechanism=EVEN), "SetPattern needs a site of kind pattern; got L0H1"),
        (lambda: Knockout(site=PATTERN), "Knockout needs a site of kind scores; got L0H1 pattern"),
        (lambda: Add(site=PATTERN, direction=VECTOR), "Add needs a site that holds vectors"),
        (lambda: Project(site=PATTERN, basis=VECTOR, part="keep"), "Project needs a site that holds vectors"),
        (
            lambda: Project(site=HEAD, basis=VECTOR, part="keep"),
            r"basis must be \(direction, width\); got shape \(4,\)",
        ),
        (lambda: Add(site=HEAD, direction=Named(name="m", value=torch.ones(2, 2))), "direction must be a vector"),
        (lambda: LowRank(site=ParamSite(name="b_O", layer=0), rank=1), "LowRank needs a matrix; L0 b_O is a bias"),
        (lambda: LowRank(site=ParamSite(name="W_E"), rank=-1), "rank must be at least 0; got -1"),
    ],
)
def test_an_impossible_combination_cannot_be_built(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_interventions_print_and_compare_as_values():
    copy = Named(name="reference", value=BATCH.value.select(slice(None)))
    other = Named(name="reference", value=BATCH.value.select(slice(1, None)))
    assert Patch(site=HEAD, source=BATCH) == Patch(site=HEAD, source=copy)
    assert Patch(site=HEAD, source=BATCH) != Patch(site=HEAD, source=other)
    assert len({Zero(site=HEAD), Zero(site=HEAD), Zero(site=PATTERN), Knockout(site=Site(kind="scores", layer=0))}) == 3
    assert str(Mean(site=HEAD, source=BATCH, over="is_repeat")) == f"L0H1 := mean over is_repeat of {BATCH}"
    assert str(Add(site=HEAD, direction=VECTOR, coefficient=2.0)) == f"L0H1 plus 2 direction ({VECTOR.digest})"
    assert str(LowRank(site=ParamSite(name="W_O", layer=0, head=1), rank=2)) == "L0H1 W_O := top of rank 2"


def test_the_digest_tells_shape_type_and_content_apart():
    values = [torch.zeros(4), torch.zeros(2, 2), torch.zeros(4).double(), torch.tensor([0.0, 0, 0, 1])]
    assert len({Named(name="t", value=value).digest for value in values}) == 4


def test_every_kind_and_every_weight_names_its_place():
    assert {str(Site(kind=kind, layer=None if "embed" in kind else 0).hook) for kind in KINDS if kind != "result"} == {
        *("hook_embed", "hook_pos_embed", "blocks.0.mlp.hook_pre", "blocks.0.mlp.hook_post"),
        *(f"blocks.0.hook_{name}" for name in ("resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out")),
        *("blocks.0.hook_feature", "blocks.0.hook_error"),
        *(f"blocks.0.attn.hook_{name}" for name in ("q", "k", "v", "z", "attn_scores", "pattern")),
    }
    assert len(WEIGHTS) == 16
