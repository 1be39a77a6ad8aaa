"""A rival says another thing of the same evidence."""

import pytest

from mnemoscope.claims.claim import Claim, Gate
from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import Configuration

CLAIM = Claim(
    id="C1",
    statement="The first head recalls.",
    source="a paper",
    quantifier="most",
    margin=0.5,
    gate=Gate(statement="learned", at_least=0.9),
    units={"v3": Configuration(preset="v3")},
    n_replicates=32,
    first_seed=16,
    last_seed=47,
    measure=max,
    factors={"recipe": ("published",), "kind": ("zero",)},
    system="tiny-recall",
)


def test_a_rival_is_about_the_same_models_by_the_same_measure():
    rival = CLAIM.rival("second", "The second head recalls.", quantifier="most", margin=0.0, direction="below")
    assert (rival.id, rival.source, rival.statement) == ("C1-second", "rival of C1", "The second head recalls.")
    shared = ("gate", "units", "measure", "n_replicates", "system", "replicate", "prompts", "compare", "develops")
    shared += ("first_seed", "last_seed")
    assert all(getattr(rival, name) == getattr(CLAIM, name) for name in shared)
    assert (rival.margin, rival.direction, rival.controls) == (0.0, "below", ())
    assert CLAIM.against(rival).rivals == (rival,)
    assert CLAIM.rivals == ()


def test_a_rival_needs_criteria_of_its_own():
    with pytest.raises(InputError, match="claim C1-second must have a quantifier and a margin, or parts"):
        CLAIM.rival("second", "The second head recalls.")
    one = CLAIM.rival("a", "A.", quantifier="most", margin=0.0)
    with pytest.raises(InputError, match="rivals of claim C1 must have different names"):
        CLAIM.against(one, one)


def test_a_rival_is_asked_under_the_same_changes():
    """Keywords of the measure mean nothing to another measure; what is trained does."""
    one = CLAIM.rival("a", "A.", quantifier="most", margin=0.0)
    assert one.factors == CLAIM.factors
    assert CLAIM.rival("b", "B.", quantifier="most", margin=0.0, measure=min).factors == {"recipe": ("published",)}
    assert CLAIM.rival("c", "C.", quantifier="most", margin=0.0, factors={}).factors == {}
