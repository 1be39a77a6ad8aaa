"""What the laws find on bridges is what the analyses refuse there, so that one answer decides what a model honours."""

import pytest

from mnemoscope.core.errors import InputError
from mnemoscope.core.site import EMBEDDINGS
from mnemoscope.hookcheck.check import check_model
from mnemoscope.hookcheck.subject import POINT_KINDS
from mnemoscope.interventions.writing import bypassed_layers, check_written
from tests.bridge import as_bridge, llama_and_bridge
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
