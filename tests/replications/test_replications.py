"""Code that imports nothing of the package measures headline claims again, and comes to the verdicts on record."""

import ast
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "replications"
SYSTEMS = ROOT / "src" / "mnemoscope" / "systems"
TOLERANCES = json.loads((FOLDER / "tolerances.json").read_text(encoding="utf-8"))
RESULTS = {line["claim"]: line for line in json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))}


@pytest.fixture
def run(monkeypatch):
    """The runner; its folder is the place that its own imports start from."""
    monkeypatch.syspath_prepend(FOLDER)
    import run

    return run


def on_record(claim: str) -> dict:
    """The verdict in the registry of the package."""
    [file] = SYSTEMS.glob(f"*/registry/{claim}.json")
    verdicts = json.loads(file.read_text(encoding="utf-8"))["verdicts"]
    [found] = [each for each in verdicts if each["superseded"] is None]
    return found


@pytest.mark.thorough
@pytest.mark.drawn(3, of="replications")
@pytest.mark.parametrize("claim", TOLERANCES)
def test_a_claim_comes_out_as_on_record(run, claim):
    found, record = run.replicate(claim), on_record(claim)
    assert found["outcome"] == record["outcome"]
    assert abs(found["n_clear"] - record["n_clear"]) <= TOLERANCES[claim]["seeds"]
    assert abs(found["n"] - record["n"]) <= TOLERANCES[claim]["seeds"]
    assert found["agrees"], found["note"]
    for effect, most in TOLERANCES[claim]["effects"].items():
        assert found["effects"][effect] == pytest.approx(RESULTS[claim]["effects"][effect], abs=most)


@pytest.mark.every_case
@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.py")), ids=lambda file: file.stem)
def test_no_file_imports_the_package(file):
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
        elif isinstance(node, ast.Call):  # importlib.import_module("mnemoscope"), __import__("mnemoscope")
            names |= {
                each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)
            }
    assert not [name for name in names if name.partition(".")[0] == "mnemoscope"]
    assert names


def test_the_results_are_those_of_all_claims_and_say_where_they_agree():
    assert list(RESULTS) == list(TOLERANCES)
    assert len(RESULTS) >= 12
    assert {on_record(claim)["outcome"] for claim in RESULTS} >= {"SUPPORTED", "REFUTED"}
    for claim, line in RESULTS.items():
        record, most = on_record(claim), TOLERANCES[claim]["seeds"]
        same = line["outcome"] == record["outcome"] and all(abs(line[n] - record[n]) <= most for n in ("n_clear", "n"))
        assert same or not line["agrees"]
        assert line["agrees"] or line["note"]
        assert (ROOT / line["code"]).is_file()
        assert set(line["effects"]) == set(TOLERANCES[claim]["effects"])
        row = f"| {claim} | {line['outcome']} | {line['n_clear']} of {line['n']} | {record['outcome']}, "
        assert row in (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.mark.full
@pytest.mark.parametrize(
    ("n", "n_missed", "quantifier", "outcome"),
    [
        (16, 0, "most", "SUPPORTED"),  # 16 of 16 by a fair coin: 2^-16
        (16, 2, "most", "SUPPORTED"),  # 14 or more of 16: 137 / 65536 = .0021
        (16, 3, "most", "INCONCLUSIVE"),  # 13 or more of 16: 697 / 65536 = .011
        (18, 9, "most", "MIXED"),
        (16, 16, "most", "REFUTED"),
        (16, 1, "every", "REFUTED"),
        (15, 0, "every", "INCONCLUSIVE"),
    ],
)
def test_an_outcome_follows_from_the_number_of_seeds(run, n, n_missed, quantifier, outcome):
    from judging import Criterion

    criterion = Criterion(effect="effect", direction="above", margin=0.5, quantifier=quantifier)
    effects = [{"effect": 0.0 if i < n_missed else 1.0} for i in range(n)]
    assert run.decide((criterion,), effects) == outcome
    assert run.n_clear((criterion,), effects) == n - n_missed


@pytest.mark.full
def test_a_difference_is_told(run, monkeypatch):
    """Another outcome, another number of seeds and another effect are named; a replication could not disagree else."""
    clean = {"gate": 1.0, "effect": -0.5602}
    monkeypatch.setitem(run.REPLICATIONS, "T14", Planted(run.REPLICATIONS["T14"], [clean] * 31))
    assert run.replicate("T14")["agrees"]
    monkeypatch.setitem(run.REPLICATIONS, "T14", Planted(run.REPLICATIONS["T14"], [{**clean, "effect": 0.1}] * 30))
    found = run.replicate("T14")
    assert not found["agrees"]
    assert (found["outcome"], found["n_clear"], found["n"]) == ("SUPPORTED", 30, 30)
    assert all(
        word in found["note"] for word in ("outcome on record is REFUTED", "n_clear", "n on record is 31", "effect")
    )


@pytest.mark.full
def test_models_with_weights_set_by_hand_meet_and_miss_what_no_trained_one_meets(run):
    """One head a skill meets T14 and T22, which are refuted in every seed; a shared store does not meet T14."""
    from archives import Run
    from mnemoscope.systems.tiny_recall.constructed import dissociated, shared_store

    found = {}
    for make in (dissociated, shared_store):
        model = make()
        planted = Run(
            seed=3,
            task={"split_seed": 3, "train_fraction": 0.8},
            model={"normalization": "none", "mlp": not model.cfg.attn_only},
            log=(),
            trajectory={},
            weights={name: value.detach() for name, value in model.named_parameters()},
        )
        found[make] = [run.REPLICATIONS[claim].replicate({"v3": planted}) for claim in ("T14", "T22")]
    for claim, effects in zip(("T14", "T22"), found[dissociated], strict=True):
        assert run.REPLICATIONS[claim].passes(effects)
        assert run.n_clear(run.REPLICATIONS[claim].criteria, [effects]) == 1
    assert run.n_clear(run.REPLICATIONS["T14"].criteria, found[shared_store][:1]) == 0


@pytest.mark.full
@pytest.mark.every_case
@pytest.mark.parametrize(
    ("claim", "configuration"),
    [("T2", "v3-published"), ("B2", "birth-1-layer-quick"), ("K1", "k-hop-4-2-layers-quick")],
)
def test_models_without_the_property_miss_the_criterion(run, claim, configuration):
    """Models that recall, have one layer, or one too few: none of them gives what the claim asks for."""
    from archives import read_run

    replication = run.REPLICATIONS[claim]
    [name] = replication.units
    other = {name: read_run(replication.system, configuration, 17)}
    assert run.n_clear(replication.criteria, [replication.replicate(other)]) == 0


class Planted:
    """A replication with measurements put in the place of its own, a seed each."""

    def __init__(self, replication, effects):
        self.replication, self.effects = replication, dict(enumerate(effects))

    def __getattr__(self, name):
        return getattr(self.replication, name)

    def seeds(self):
        return list(self.effects)

    def measure(self, seed):
        return self.effects[seed]


@pytest.fixture
def runs(run, monkeypatch, tmp_path):
    """A function that reads one run by the package and by the replications' own reader."""
    import archives
    import mnemoscope as ms

    monkeypatch.setenv("MNEMOSCOPE_CACHE", str(tmp_path))
    return lambda system, configuration: (
        ms.open_run(f"zoo:{configuration}/seed-32"),
        archives.read_run(system, configuration, 32),
    )


@pytest.mark.full
def test_a_forward_pass_and_the_unseen_mappings_are_those_of_the_package(run, runs):
    """The pass is written out for the last position, and mappings are split by a stream of the seed."""
    theirs, ours = runs("tiny_recall", "v3-published")
    mappings = run.tiny_recall.unseen(ours)
    assert mappings.sort(0)[0].tolist() == theirs.spec.task.mappings("test").sort(0)[0].tolist()
    inputs = run.tiny_recall.sequences(mappings[:2], repeats=True).inputs
    expected = theirs.model()(inputs).log_softmax(-1)[:, -1]
    assert (run.tiny_recall.forward(ours, inputs).log_probs - expected).abs().max() < 1e-4


@pytest.mark.full
def test_frozen_weights_are_drawn_as_in_training(run, runs):
    """What an archive leaves out follows from the seed; other weights would answer nothing."""
    theirs, ours = runs("in_context_bigrams", "memories-all-sgd")
    tokens = run.in_context_bigrams.draw(4, ours.task["length"], run.in_context_bigrams.fresh_draws(ours))[0][:, :-1]
    assert (run.in_context_bigrams.model_of(ours)(tokens) - theirs.model()(tokens)).abs().max() < 1e-3


@pytest.mark.full
def test_facts_and_routes_are_those_of_the_package(run, runs):
    """The two routes are tables over tokens, and add up to the logits."""
    theirs, ours = runs("factual_recall", "facts-wide-quick")
    tokens, answer = run.factual_recall.sequences(ours)
    first = theirs.spec.task.first
    subject = tokens.where((tokens >= first["subject"]) & (tokens < first["relation"]), -1).max(1)[0] - first["subject"]
    relation = tokens.where((tokens >= first["relation"]) & (tokens < first["noise"]), -1).max(1)[0] - first["relation"]
    assert (answer == theirs.spec.task.table()[subject, relation]).all()
    right = (theirs.model()(tokens)[:, -1].argmax(-1) == answer).double().mean()
    assert run.factual_recall.routes(ours)["both"] == pytest.approx(float(right), abs=1e-3)


@pytest.mark.full
@pytest.mark.parametrize("configuration", ["addition-c0-quick", "addition-c1-quick"])
def test_the_algebra_of_an_adder_is_its_forward_pass(run, runs, configuration):
    theirs, ours = runs("modular_addition", configuration)
    adder = run.modular_addition.adder(ours)
    _, cache = theirs.model().run_with_cache(theirs.spec.task.table().inputs)
    expected = cache["blocks.0.mlp.hook_pre"][:, -1].view(31, 31, -1)
    assert (adder.before_relu(adder.pattern)[1] - expected).abs().max() < 1e-4
