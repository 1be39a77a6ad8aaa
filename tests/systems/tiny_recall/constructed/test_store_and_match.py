import pytest
import torch

from mnemoscope.core.batch import Named
from mnemoscope.core.intervention import Patch
from mnemoscope.core.site import Site
from mnemoscope.interventions.run import run_with
from mnemoscope.systems.tiny_recall.constructed import store_and_match, store_and_match_circuit
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import seeded


@pytest.mark.parametrize("n_values", [4, 5])
@torch.no_grad()
def test_it_predicts_as_the_exact_predictor_does(n_values):
    task = PermutationLookup(n_values=n_values, repeat_ratio=0.5)
    batch = task.enumerate(split="all").select(slice(None, None, 7))
    difference = store_and_match(n_values)(batch.inputs).softmax(-1) - task.reference(batch, "bayes")
    assert difference[:, ::2].abs().max() < 1e-3


def test_one_head_carries_what_stood_where_and_the_other_which_slot_is_repeated():
    task, model = PermutationLookup(repeat_ratio=1.0), store_and_match()
    clean = task.enumerate(split="all").select(slice(None, None, 97))
    clean = clean.select(clean.latents["is_repeat"])
    heads = store_and_match_circuit().heads
    for kind, carrier, other in (("exchange_answer", "store", "match"), ("move_repeat", "match", "store")):
        corrupted = task.corrupt(clean, kind=kind, generator=seeded())
        source = Named(name="clean", value=clean)
        for name, answer in ((carrier, clean), (other, corrupted)):
            layer, head = heads[name]
            logits = run_with(model, corrupted, [Patch(site=Site(kind="z", layer=layer, head=head), source=source)])
            assert (logits[:, -1].argmax(-1) == answer.targets[:, -1]).all(), (kind, name)
