"""Known circuits of trained models: what their claims measured holds on these runs, and absent edges carry little."""

import numpy as np
import pytest

import mnemoscope as ms
from mnemoscope.methods import KNOWN_CIRCUITS, KnownCircuit, TrainedCircuit
from mnemoscope.methods.trial import _names

NAMES = [name for name in KNOWN_CIRCUITS.names() if name.startswith("trained-")]
ONE_EACH = NAMES[::3]
LOST = 0.2
"""Share of the effect that all absent edges together may carry."""


def setting_of(known: KnownCircuit, n: int = 32) -> ms.analyses.Setting:
    return ms.analyses.Setting(model=known.model, pairs=known.pairs(n, 5))


def test_three_runs_of_each_of_six_circuits():
    assert len(NAMES) == 18
    assert all(NAMES[i].rsplit("-seed-", 1)[0] == NAMES[i + 1].rsplit("-seed-", 1)[0] for i in range(0, 18, 3))


@pytest.mark.full
@pytest.mark.parametrize("name", ONE_EACH)
def test_absent_edges_carry_little_together_and_the_circuit_most(name):
    check(name)


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(set(NAMES) - set(ONE_EACH)))
def test_absent_edges_of_the_other_runs(name):
    check(name)


def check(name: str) -> None:
    """The joint effect of edges: no method that is tried measures it for edges that others chose."""
    known = KNOWN_CIRCUITS.get(name)()
    assert known.name == name
    setting = setting_of(known)
    assert len(setting.pairs) == 32
    assert known.absent is not None
    inside, absent = (ms.analyses.circuit(setting.edges, side).to_numpy() for side in (known.edges, known.absent))
    without_absent, without_inside = setting.faithfulness(np.stack([~absent, ~inside]))
    assert abs(1 - without_absent) < LOST
    assert without_inside < 0.5


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in ONE_EACH if "memories" not in name])
def test_the_token_that_is_read_is_the_same_on_both_sides(name):
    pairs = KNOWN_CIRCUITS.get(name)().pairs(16, 1)
    assert pairs.clean.inputs[pairs.scored].equal(pairs.corrupted.inputs[pairs.scored])
    assert (pairs.scored.sum(1) == 1).all()


def test_exchanged_triggers_are_what_they_say():
    known = KNOWN_CIRCUITS.get("trained-memories-triggers-seed-32")()
    pairs = known.pairs(16, 1)
    clean, corrupted = pairs.clean.inputs, pairs.corrupted.inputs
    assert len(pairs) == 16
    assert clean[pairs.scored].equal(corrupted[pairs.scored])
    for row in range(16):
        at = int(pairs.scored[row].nonzero())
        trigger, answer, foil = (int(each[row, at]) for each in (clean, pairs.answer, pairs.foil))
        for tokens, due in ((clean[row], answer), (corrupted[row], foil)):
            places = (tokens[:at] == trigger).nonzero()[:, 0]
            assert len(places)
            assert all(int(tokens[place + 1]) == due for place in places)


def test_methods_that_established_a_circuit_are_not_tried_on_it():
    found = ms.methods.try_circuit(
        KNOWN_CIRCUITS.get("trained-facts-wide-seed-16")(), ["eap", "edge-ablation-mean"], n=8, n_draws=1
    )
    assert "establishing" in found.refused.sel(finder="edge-ablation-mean").item()
    assert found.auroc.sel(finder="edge-ablation-mean").isnull().all()
    assert found.auroc.sel(finder="eap").notnull().all()
    assert int(found.judged.sum()) == 19 < found.sizes["edge"]


def test_only_judged_edges_count():
    known = KNOWN_CIRCUITS.get("trained-running-sum-seed-32")()
    random = ms.methods.try_circuit(known, ["random"], n=4, n_draws=1)
    judged = random.judged.values == 1
    score = random.score.values[0, 0]
    true = random.truth.values == 1
    above = score[judged & ~true] < score[true]
    assert random.auroc.values[0, 0, 1] == pytest.approx(above.mean())


def test_runs_that_are_not_installed_are_left_out(monkeypatch):
    monkeypatch.setattr("mnemoscope.methods.known.archive_file", lambda label: None)
    assert not any(name.startswith("trained-") for name in _names("known circuit", KNOWN_CIRCUITS, None))
    assert isinstance(KNOWN_CIRCUITS.get(NAMES[0]), TrainedCircuit)


@pytest.mark.thorough
@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", [name for name in NAMES if "triggers" not in name])
def test_the_claims_hold_on_these_runs(name):
    """What the verdict says of most runs holds on each of these."""
    circuit = KNOWN_CIRCUITS.get(name)
    assert isinstance(circuit, TrainedCircuit)
    by_label = {
        "sorted-list-quick": ("P11",),
        "running-sum-quick": ("P13",),
        "v3-quick": ("T13", "T16"),
        "facts-wide-quick": ("F2",),
        "memories-sgd": ("B4",),
    }
    for claim_id in by_label[circuit.label]:
        claim = ms.CLAIMS.get(claim_id)
        subjects = {}
        for unit in claim.units:
            recipe = "sgd" if unit == "memories" else "quick"
            (run,) = ms.find_runs(f"zoo:{unit}-{recipe}/seed-{circuit.seed}")
            subjects[unit] = ms.models.subject(run)
        assert claim.measure is not None
        measured = {unit: claim.measure(each) for unit, each in subjects.items()}
        effects = next(iter(measured.values())) if claim.compare is None else claim.compare(measured)
        clear = [(effects[part.name] > part.margin) == (part.direction == "above") for part in claim.parts]
        assert any(clear) if claim.joined == "any" else all(clear), (claim_id, effects)
