import torch

from mnemoscope.analyses.contrasts import contrast
from mnemoscope.core.batch import Batch
from tests.support import foreign_model

BATCH = Batch(
    inputs=torch.tensor([[0, 1]]), targets=torch.tensor([[2, -1]]), scored=torch.tensor([[True, False]])
)  # no target where nothing is scored
LOGITS = torch.tensor([[[1.0, -2, 5, 8], [0, 0, 0, 0]]])
MODEL = foreign_model(d_vocab=4)


def at(foil):
    return contrast(MODEL, BATCH, positions=BATCH.scored, foil=foil)


def test_differences_by_hand():
    for foil, value, size in ((torch.tensor([[1, -1]]), 7, 7), ([0, 1], 5.5, 6.5), ("mean", 2, 9)):
        here = at(foil)
        assert here.difference(LOGITS)[0, 0] == value
        assert here.size(LOGITS)[0, 0] == size


def test_columns_of_a_matrix_differ_as_the_logits_they_give():
    for foil in (torch.tensor([[1, -1]]), [0, 1], "mean"):
        here = at(foil)
        stream = torch.ones(1, 2, 8)
        expected = here.difference(stream @ MODEL.W_U)
        found = (stream * here.column_difference(MODEL.W_U)).sum(-1)
        torch.testing.assert_close(found, expected.double(), atol=1e-6, rtol=1e-6)


def test_names():
    assert at("mean").name == "answer - mean of all 4 logits"
    assert at([1, 2]).name == "answer - mean of the logits of tokens 1, 2"
    assert at(torch.tensor([[1, 1]])).name == "answer - foil"
