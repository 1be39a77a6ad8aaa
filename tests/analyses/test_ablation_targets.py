import pytest

from mnemoscope.analyses.ablation import attention_paths, heads_and_mlps, position_targets, target_subsets
from mnemoscope.core.errors import InputError
from mnemoscope.core.site import Site
from tests.support import random_model


def test_what_can_be_removed_by_name():
    model = random_model(n_layers=2)
    assert list(heads_and_mlps(model)) == ["L0H0", "L0H1", "L1H0", "L1H1", "L0 MLP", "L1 MLP"]
    by_position = position_targets(model, 5)
    assert len(by_position) == 6 * 5
    assert by_position["L1 MLP pos 4"] == (Site(kind="mlp_out", layer=1, pos=4),)


def test_paths_lead_from_a_key_to_a_later_query_or_to_itself():
    model = random_model(n_layers=2)
    everything = attention_paths(model, 5)
    assert len(everything) == 4 * 15
    assert everything["L1H0 2→4"] == (Site(kind="scores", layer=1, head=0, pos=4, key=2),)
    assert list(attention_paths(random_model(n_heads=1), 5, kind="pattern", queries=[2])) == [
        "L0H0 0→2",
        "L0H0 1→2",
        "L0H0 2→2",
    ]


def test_every_subset_but_the_empty_one():
    model = random_model()
    everything = target_subsets(heads_and_mlps(model))
    assert list(everything)[:4] == ["L0H0", "L0H1", "L0 MLP", "L0H0 + L0H1"]
    assert len(everything) == 7
    assert len(everything["L0H0 + L0H1 + L0 MLP"]) == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: target_subsets(position_targets(random_model(), 5)),
            "the number of targets whose subsets .* from 1 to 12; got 15",
        ),
        (lambda: attention_paths(random_model(), 5, queries=[5]), "a query must be from 0 to 4; got 5"),
        (lambda: attention_paths(random_model(), 5, kind="z"), "kind must be one of: scores, pattern; got 'z'"),
    ],
)
def test_what_cannot_be_formed_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
