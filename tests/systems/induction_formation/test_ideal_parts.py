"""Every condition of training against the same computation by hand, with nothing but the weights."""

import math

import pytest
import torch

from mnemoscope import preset
from mnemoscope.interventions.clamping import make_clamping
from mnemoscope.models.building import build_untrained, detached_parameters
from mnemoscope.systems.induction_formation.ideal_parts import (
    FLOOR,
    LABELS,
    QUERY,
    SHARPNESS,
    agreement,
    exemplar_before,
    label_attention,
    match,
    right_label,
)
from mnemoscope.systems.induction_formation.presets import CONDITIONS, LESION, LESIONED
from mnemoscope.systems.induction_formation.tasks import FewShot
from mnemoscope.training.learner import Learner
from tests.support import seeded

HELD = {
    "formation": {"heads": 8},
    "formation-one-head": {"heads": 1},
    "formation-previous": {"heads": 1, "previous": True},
    "formation-layer-1": {"heads": 1, "layer_1": True},
    "formation-match": {"heads": 1, "match": True},
    "formation-copy": {"heads": 1, "copy": True},
    "formation-layer-1-copy": {"heads": 1, "layer_1": True, "copy": True},
    "formation-key-copy": {"heads": 1, "key": True, "copy": True},
}
SMALL = {"model.d_model": 32, "model.dtype": "float64", "task.n_classes": 6, "task.n_labels": 3}


def norm(stream, w, b):
    centred = stream - stream.mean()
    return centred / math.sqrt(float(centred @ centred) / len(stream) + 1e-5) * w + b


def turned(x, pos):
    half = len(x) // 2
    result = x.clone()
    for i in range(half):
        angle = pos / 10_000 ** (i / half)
        cos, sin = math.cos(angle), math.sin(angle)
        result[i], result[i + half] = x[i] * cos - x[i + half] * sin, x[i + half] * cos + x[i] * sin
    return result


def by_hand(params, tokens, *, heads, previous=False, layer_1=False, match=False, copy=False, key=False):
    """The output at the query of one sequence, head after head and place after place."""
    n, labels = len(tokens), len(params["unembed.b_U"])
    right = 1 if tokens[0] == tokens[4] else 3
    embedded = [params["embed.W_E"][token] for token in tokens]
    stream, first, attention = list(embedded), embedded, torch.zeros(n)
    for layer in (0, 1):
        p = {name.split(".", 2)[2]: value for name, value in params.items() if name.startswith(f"blocks.{layer}.")}
        normed = [norm(each, p["ln1.w"], p["ln1.b"]) for each in stream]
        added = [p["attn.b_O"].clone() for _ in range(n)]
        for head in range(8):
            if layer == 1 and head >= heads:
                continue
            q, k, v = ([x @ p[f"attn.W_{i}"][head] + p[f"attn.b_{i}"][head] for x in normed] for i in "QKV")
            for query in range(n):
                scores = [
                    float(turned(q[query], query) @ turned(k[at], at)) / math.sqrt(len(q[0])) for at in range(query + 1)
                ]
                weights = torch.tensor(scores, dtype=torch.double).softmax(0)
                if layer == 0 and head == 0 and previous and query:
                    weights = torch.eye(n, dtype=torch.double)[query - 1][: query + 1]
                if layer == 1 and head == 0 and query == 4:
                    if match:
                        weights = torch.eye(n, dtype=torch.double)[right]
                    if key:
                        asked = embedded[4]
                        cosines = [float(asked @ w) / float(asked.norm() * w.norm()) for w in first]
                        weights = (SHARPNESS * torch.tensor(cosines, dtype=torch.double)).softmax(0)
                    attention = weights
                for at, weight in enumerate(weights):
                    added[query] += weight * v[at] @ p["attn.W_O"][head]
        if layer == 0:
            if layer_1:
                added[1], added[3] = embedded[0], embedded[2]
            first = added
        stream = [x + y for x, y in zip(stream, added, strict=True)]
    if copy:
        found = torch.full((labels,), FLOOR, dtype=torch.double)
        for at in (1, 3):
            found[tokens[at]] += attention[at]
        return found.log()
    return norm(stream[4], params["ln_final.w"], params["ln_final.b"]) @ params["unembed.W_U"] + params["unembed.b_U"]


def outputs_of(name, *, step=0, changes=()):
    spec = preset(name, "quick", 3, changes={**SMALL, **dict(changes)})
    batch = spec.task.sample(6, split="train", generator=seeded())
    params = {name: value + 0.1 * torch.randn(value.shape, generator=seeded(1), dtype=torch.double)
              for name, value in detached_parameters(build_untrained(spec, own=True)).items()}  # fmt: skip
    clamping = make_clamping(spec)
    held = None if clamping is None else clamping.held(step, lambda: [batch])
    learner = Learner(spec.model, spec.recipe, [params], [{}])
    return params, batch, learner.evaluate(batch.inputs[None], torch.tensor([QUERY]), held)[0, :, 0]


@pytest.mark.parametrize("name", HELD)
def test_a_clamped_pass_is_the_computation_by_hand(name):
    params, batch, given = outputs_of(name)
    expected = torch.stack([by_hand(params, row, **HELD[name]) for row in batch.inputs.tolist()])
    torch.testing.assert_close(given, expected, atol=1e-8, rtol=1e-8)


def test_a_lesion_comes_late_and_takes_half_of_the_heads():
    assert {*HELD} == {*CONDITIONS}
    params, batch, before = outputs_of("formation", step=LESION - 1, changes=LESIONED)
    _, _, whole = outputs_of("formation")
    torch.testing.assert_close(before, whole)
    *_, after = outputs_of("formation", step=LESION, changes=LESIONED)
    params["blocks.1.attn.W_O"][:4] = 0
    expected = torch.stack([by_hand(params, row, heads=8) for row in batch.inputs.tolist()])
    torch.testing.assert_close(after, expected, atol=1e-8, rtol=1e-8)


def test_what_is_ideal_is_the_answer():
    task = FewShot(n_classes=6, n_labels=3).for_seed(0)
    batch = task.sample(50, split="train", generator=seeded())
    rows, pattern = torch.arange(50), match(batch.inputs)
    assert (pattern[rows, QUERY, batch.latents["label_pos"]] == 1).all()
    assert (right_label(batch.inputs).sum(1) == 1).all()
    found = label_attention(batch.inputs, pattern, 3)[:, QUERY]
    assert torch.equal(found.argmax(-1), batch.targets[:, QUERY])
    stream = torch.nn.functional.one_hot(batch.inputs, task.d_vocab).float()
    routed = exemplar_before(batch.inputs, stream)
    for label in LABELS:
        assert torch.equal(routed[:, label], stream[:, label - 1])
    asked = agreement(batch.inputs, stream, routed)[:, QUERY]
    assert torch.equal(asked[:, LABELS].argmax(-1) * 2 + 1, batch.latents["label_pos"])
    assert (asked[rows, batch.latents["label_pos"]] > 0.99 * asked[:, LABELS].sum(1)).all()
