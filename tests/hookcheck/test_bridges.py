"""What the laws find on bridges is what the analyses refuse there, so that one answer decides what a model honours."""

import json
from copy import deepcopy

import pytest

from mnemoscope.core.errors import InputError
from mnemoscope.core.site import EMBEDDINGS, Site
from mnemoscope.hookcheck.check import check_model
from mnemoscope.hookcheck.laws import LAWS
from mnemoscope.hookcheck.mutants import Faulty
from mnemoscope.interventions.subject import POINT_KINDS
from mnemoscope.interventions.writing import bypassed_layers, check_written
from tests.architectures import architecture
from tests.bridge import as_bridge, llama_and_bridge
from tests.hookcheck import matrix
from tests.hookcheck.good import good
from tests.support import foreign_model

MAKE = {
    "native": lambda: as_bridge(foreign_model(d_head=4, act_fn="gelu")),
    "llama": lambda: llama_and_bridge()[1],
}


def is_refused(model, kind: str) -> bool:
    try:
        check_written(model, kind, [None] if kind in EMBEDDINGS else [0, 1])
    except InputError:
        return True
    return False


@pytest.fixture(scope="module", params=MAKE)
def bridge(request):
    return MAKE[request.param]()


@pytest.mark.sampled(1)
def test_a_law_of_reach_is_broken_where_analyses_refuse_to_write(bridge):
    findings = check_model(bridge, laws=["reach"]).findings
    laws = {kind: findings[f"reach-of-{kind.replace('_', '-')}"].outcome for kind in POINT_KINDS}
    broken = {kind for kind, outcome in laws.items() if outcome == "broken"}
    assert set(laws.values()) <= {"holds", "broken", "does not apply"}
    refused = {kind for kind, outcome in laws.items() if outcome != "does not apply" and is_refused(bridge, kind)}
    assert refused == broken - {"resid_mid"}


def test_the_middle_of_a_block_is_completed_where_its_law_is_broken(bridge):
    findings = check_model(bridge, laws=["reach-of-resid-mid"]).findings
    assert findings["reach-of-resid-mid"].outcome == "broken"
    assert bypassed_layers(bridge, [0, 1]) == {0, 1}


def test_the_laws_of_identity_hold_on_bridges(bridge):
    assert check_model(bridge, laws=["identity"]).broken == ()


def stands_alone(model):
    """The model as one that analyses try out; a HookedTransformer they believe."""
    vars(model)["is_adapted"] = True
    return model


@pytest.mark.parametrize("kind", POINT_KINDS)
def test_what_the_mutant_of_a_law_ignores_is_refused(kind):
    law = LAWS[f"reach-of-{kind.replace('_', '-')}"]
    model = good("plain")
    assert not is_refused(stands_alone(Faulty(model)), kind)
    assert is_refused(stands_alone(law.mutant(model)), kind)


RECORDED = json.loads(matrix.RECORDED.read_text(encoding="utf-8"))[f"TransformerBridge {matrix.LINE}"]
DECIDED_TOGETHER = {"q": "queries-and-keys", "k": "queries-and-keys"}
"""Factors at q and k are none of the scores where a norm follows, but what is written there is used."""


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name, cell in RECORDED.items() if "none" not in cell])
def test_analyses_refuse_what_the_table_of_architectures_has_as_broken(name):
    model = matrix.backends()[f"TransformerBridge {matrix.LINE}"](deepcopy(architecture(name)))
    laws = {kind: f"reach-of-{DECIDED_TOGETHER.get(kind, kind).replace('_', '-')}" for kind in POINT_KINDS}
    broken = {kind for kind, law in laws.items() if law in RECORDED[name]["broken"]}
    sites = [Site(kind=kind, layer=None if kind in EMBEDDINGS else 0) for kind in POINT_KINDS]
    refused = {site.kind for site in sites if site.hook in model.hook_dict and is_refused(model, site.kind)}
    assert refused - {"pos_embed"} == broken - {"resid_mid"}
