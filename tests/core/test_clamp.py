import dataclasses
import json

import pytest

import mnemoscope as ms
from mnemoscope.core.clamp import Clamp, IdealPart, find_ideal, find_mechanism, in_force
from mnemoscope.core.errors import InputError
from mnemoscope.core.site import ParamSite, Site
from mnemoscope.core.specification import Recipe, RunSpec
from tests.support import small_spec

EVERY = (
    Clamp(place="L0H1", value="zero", start=3, stop=9, ramp=2),
    Clamp(place="L0H0,1 q", value="mean"),
    Clamp(place="L0H1 scores pos -1", value="knockout"),
    Clamp(place="L0 resid_post pos (1, 2)", scale=0.5),
    Clamp(place="L0H0 pattern", pattern="previous token"),
    Clamp(place="L0H1", patch="L0H0", start=1),
    Clamp(place="L0 W_in", rank=4),
    Clamp(place="W_E", value="hold", stop=5),
    Clamp(place="logits", ideal="answer"),
    Clamp(ideal="answer", stop=2),
)


@pytest.mark.parametrize("clamp", EVERY, ids=str)
def test_text_and_value_say_the_same(clamp):
    assert Clamp.read(str(clamp)) == clamp


def test_clamps_survive_json_and_older_specifications_stay_as_they_were():
    spec = small_spec(changes={"recipe.clamps": EVERY})
    again = RunSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
    assert again == spec
    assert again.recipe.clamps == EVERY
    assert "clamps" not in small_spec().to_dict()["recipe"]


def test_plain_data_is_enough():
    spec = small_spec(changes={"recipe.clamps": [{"ideal": "answer"}, {"place": "L0H1", "value": "zero", "start": 4}]})
    assert spec.recipe.clamps == (Clamp(ideal="answer"), Clamp(place="L0H1", value="zero", start=4))


def test_the_share_grows_in_equal_parts_and_ends_before_stop():
    clamp = Clamp(place="L0H1", value="zero", start=2, stop=7, ramp=3)
    assert [clamp.share(step) for step in range(9)] == [0, 0, 0.25, 0.5, 0.75, 1, 1, 0, 0]
    assert Clamp(place="L0H1", value="zero").share(0) == 1
    assert in_force((clamp, Clamp(place="L0 MLP", value="zero", start=5)), 3) == {clamp: 0.5}


@pytest.mark.parametrize(
    "site",
    [
        Site(kind="z", layer=1, head=3),
        Site(kind="z", layer=1),
        Site(kind="mlp_out", layer=0, pos=-1),
        Site(kind="embed"),
        Site(kind="pattern", layer=0, head=1, pos=2, key=-1),
        Site(kind="scores", layer=0, key="x1"),
        Site(kind="post", layer=0, neuron=(1, 2), pos=(0, 3)),
        Site(kind="resid_post", layer=11, pos="label"),
    ],
    ids=str,
)
def test_a_place_is_read_from_its_text(site):
    assert Site.read(str(site)) == site


def test_several_heads_are_several_places():
    assert Clamp(place="L1H0,2-3 k", value="zero").places == tuple(Site(kind="k", layer=1, head=i) for i in (0, 2, 3))
    assert Clamp(place="L1H2 W_O", scale=0.5).places == (ParamSite(name="W_O", layer=1, head=2),)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"place": "L0H1"}, "a clamp has one of value, scale, .*; got none at L0H1"),
        ({"place": "L0H1", "value": "zero", "scale": 2.0}, "a clamp has one of .*; got value, scale at L0H1"),
        ({"value": "zero"}, "a clamp names its place"),
        ({"place": "L0H1", "value": "zero", "start": 5, "stop": 5}, "must come after its start, 5; got 5; leave stop"),
        ({"place": "L0H1", "value": "zero", "ramp": -1}, "ramp of the clamp L0H1=zero .* must be at least 0; got -1"),
        ({"place": "L0H1", "value": "zero", "start": -1}, "start of the clamp .* must be at least 0; got -1"),
        ({"place": "somewhere", "value": "zero"}, "kind of a site must be one of"),
        ({"place": "L0", "value": "zero"}, "names a layer and no kind"),
        ({"place": "L0H1-", "value": "zero"}, "a place must look like L1H3"),
        ({"place": "L0H3-1", "value": "zero"}, "names each of its heads once"),
        ({"place": "L0H1", "value": "knockout"}, "knockout needs a place of kind scores, such as L0H1 scores"),
        ({"place": "L0H1", "pattern": "previous token"}, "pattern needs a place of kind pattern"),
        ({"place": "L0H1", "rank": 3}, "what stands at L0H1 in a clamp must be one of: zero, mean, knockout"),
        ({"place": "L0 W_in", "value": "mean"}, "what stands at L0 W_in in a clamp must be one of: zero, hold"),
        ({"place": "L0 b_in", "rank": 3}, "rank needs a matrix"),
        ({"place": "L0H1 W_O", "value": "hold"}, "hold takes a whole weight"),
        ({"place": "logits", "value": "zero"}, "what stands at logits in a clamp must be one of: ideal; got 'zero'"),
        ({"place": "L0H1", "patch": "logits"}, "cannot copy from the logits"),
    ],
)
def test_what_is_no_clamp_is_refused(fields, message):
    with pytest.raises(InputError, match=message):
        Clamp(**fields)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a clamp looks like L1H3=zero, .* got ''"),
        ("L0H1", "a clamp looks like"),
        ("L0H1=nothing", "a clamp looks like"),
        ("L0H1=zero 3", "a clamp looks like"),
        ("L0H1=scale", "a clamp looks like|takes a number"),
        ("L0H1=scale much", "scale of a clamp takes a number"),
        ("L0H1=zero until 5", "a clamp looks like"),
        ("L0H1=zero from 5 to 3", "must come after its start, 5; got 3"),
    ],
)
def test_a_text_that_is_no_clamp_is_refused(text, message):
    with pytest.raises(InputError, match=message):
        Clamp.read(text)


def test_a_clamp_that_begins_after_the_end_is_refused():
    with pytest.raises(InputError, match="start of the clamp L0H1=zero from 9 must be from 0 to 8; got 9"):
        Recipe(n_steps=9, clamps=(Clamp(place="L0H1", value="zero", start=9),))


def test_names_of_ideal_parts_and_mechanisms_are_those_of_the_task():
    task = small_spec().task
    assert find_mechanism(task, "same slot").name == "same slot"
    with pytest.raises(InputError, match=r"the pattern of a clamp must be one of: uniform, .* nearest: previous token"):
        find_mechanism(task, "previous tokens")
    with pytest.raises(InputError, match="has no ideal parts; got ideal 'copy'; clamp a place instead"):
        find_ideal(task, "copy")

    part = IdealPart(site="logits", value=lambda inputs: inputs)
    kind = dataclasses.make_dataclass("WithParts", [], bases=(type(task),), frozen=True, kw_only=True)
    kind.ideal_parts = lambda self: {"copy": part}
    assert find_ideal(kind(), "copy") is part
    with pytest.raises(InputError, match="an ideal part of permutation-lookup must be one of: copy; got 'match'"):
        find_ideal(kind(), "match")


def test_an_ideal_part_reads_whole_activations():
    with pytest.raises(InputError, match="leave pos, key and neuron out of L0H1 pos 2"):
        IdealPart(site="logits", value=lambda inputs, z: z, reads=(ms.Site(kind="z", layer=0, head=1, pos=2),))
