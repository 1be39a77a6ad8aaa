import pytest

from mnemoscope.analyses.evaluation import accuracy_by_skill
from mnemoscope.models.constructed.stand_ins import Predictor
from mnemoscope.models.subjects import untrained
from mnemoscope.systems.tiny_recall.claims.capacity import T18, T19, WIDTHS, elimination, measure_both
from mnemoscope.systems.tiny_recall.constructed import elimination_only
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.systems.on_trial import on, trouble, verdict

FOUR = PermutationLookup(n_values=4)
CLAIMS = {claim.id: claim for main in (T18, T19) for claim in (main, *main.rivals)}


def test_elimination_is_that_of_the_skill():
    for subject in (
        untrained({"d4": WIDTHS["d4"]})(0)["d4"],
        on(elimination_only(4), FOUR),
    ):
        for split in ("test", "train"):
            assert elimination(subject, split=split) == accuracy_by_skill(subject, split=split)["elimination"]


def test_by_heart_is_right_on_training_mappings_only():
    by_heart = Predictor(FOUR.for_seed(0), "bayes_train")
    assert measure_both(on(by_heart, FOUR)) == {"unseen": 0, "training": 1}


@pytest.mark.parametrize("name", CLAIMS)
def test_controls_behave(name):
    assert trouble(CLAIMS[name], most=1) is None


def verdicts(claim, table):
    return {each.id: verdict(each, each.compare(table)).outcome for each in (claim, *claim.rivals)}


def widths(**accuracy):
    return {name: {"unseen": accuracy.get(name, 0.6)} for name in WIDTHS}


@pytest.mark.parametrize(
    ("table", "supported"),
    [
        (widths(v1=1.0), {"T18"}),
        (widths(v1=1.0, d12=1.0), {"T18-d12"}),
        (widths(v1=1.0, d12=1.0, d8=1.0, d4=1.0), {"T18-d12", "T18-d8", "T18-d4"}),
        (widths(v1=0.98), set()),
    ],
)
def test_which_width_suffices(table, supported):
    found = verdicts(T18, table)
    assert {name for name, outcome in found.items() if outcome == "SUPPORTED"} == supported
    assert set(found.values()) <= {"SUPPORTED", "REFUTED"}


def test_at_the_margin_nothing_is_decided():
    assert set(verdicts(T18, widths(v1=0.99, d12=0.99, d8=0.99, d4=0.99)).values()) == {"INCONCLUSIVE"}


@pytest.mark.parametrize(
    ("four", "training", "five", "expected"),
    [
        (0.0, 1.0, 1.0, {"T19": "SUPPORTED", "T19-generalises": "REFUTED"}),
        (0.6, 1.0, 1.0, {"T19": "SUPPORTED", "T19-generalises": "REFUTED"}),
        (0.625, 1.0, 1.0, {"T19": "INCONCLUSIVE", "T19-generalises": "REFUTED"}),  # at the margin
        (1.0, 1.0, 1.0, {"T19": "REFUTED", "T19-generalises": "SUPPORTED"}),
        (0.7, 1.0, 1.0, {"T19": "REFUTED", "T19-generalises": "REFUTED"}),
        (0.25, 0.25, 1.0, {"T19": "REFUTED", "T19-generalises": "REFUTED"}),  # nothing learned is not by heart
        (0.0, 1.0, 0.5, {"T19": "REFUTED", "T19-generalises": "REFUTED"}),
    ],
)
def test_four_and_five_values(four, training, five, expected):
    table = {"v3-4-values": {"unseen": four, "training": training}, "v3-fresh": {"unseen": five, "training": 1.0}}
    assert verdicts(T19, table) == expected


def test_both_sizes_differ_in_the_number_of_values_alone():
    four, five = (T19.units[name].spec(0) for name in ("v3-4-values", "v3-fresh"))
    assert four.model == five.model
    assert (four.task.n_values, five.task.n_values) == (4, 5)
    assert four.task.repeat_ratio == five.task.repeat_ratio == 0
