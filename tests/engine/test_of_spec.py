import pytest
import torch

from mnemoscope.core.specification import ModelSpec
from mnemoscope.engine import lookup
from mnemoscope.models.building import detached_parameters
from tests.support import logits_of, random_model, seeded

TOKENS = torch.randint(0, 6, (17, 9), generator=seeded())
SCORED = torch.tensor([0, 2, 4, 6, 8])
TOLERANCE = {"float32": {"atol": 1e-5, "rtol": 1e-5}, "float64": {"atol": 1e-10, "rtol": 0}}
ARCHITECTURES = [
    {},
    {"normalization": "none"},
    {"n_layers": 2},
    {"n_layers": 3, "normalization": "none", "act_fn": "gelu"},
    {"n_layers": 3, "n_heads": 1},
    {"mlp": False},
    {"mlp": False, "n_layers": 2},
    {"attention": False},
    {"attention": False, "n_layers": 2},
    {"act_fn": "gelu", "d_mlp": 5, "n_heads": 4},
    {"positions": False, "n_layers": 2},
    {"attention_dir": "bidirectional"},
    {"attention_dir": "bidirectional", "n_layers": 2},
    {"softmax": False, "n_layers": 2},
    {"softmax": False, "attention_dir": "bidirectional"},
    {"initialisation": "normal", "normalization": "none"},
    {"embeddings": "frozen", "silent": 2},
    {"masked": 2},
    {"masked": -1, "n_layers": 2, "attention_dir": "bidirectional"},
    {"attention_mix": 0.3},
    {"attention_mix": 0.0, "n_layers": 2, "initialisation": "by-width"},
    {"attention_mix": 0.7, "masked": 0, "attention_dir": "bidirectional"},
    {"position_kind": "rotary", "n_layers": 2},
    {"position_kind": "rotary", "mlp": False, "d_head": 6, "attention_dir": "bidirectional"},
    {"position_kind": "relative", "n_layers": 2},
    {"position_kind": "relative", "mlp": False, "initialisation": "small", "n_layers": 2},
]


def both(tokens=TOKENS, at=SCORED, **fields):
    """Logits of the hooked model and of the hook-free pass, and the two sets of parameters."""
    spec = ModelSpec(**{"d_model": 8, "n_heads": 2, **fields})
    model = random_model(**fields)
    params = {name: value.requires_grad_() for name, value in detached_parameters(model).items()}
    return model, params, model(tokens)[:, at], logits_of(params, spec, tokens, at)


@pytest.fixture(params=[True, False], ids=["looked up", "not looked up"], autouse=True)
def first_layer(request, monkeypatch):
    """Every test with the first attention layer from tables and without."""
    if not request.param:
        monkeypatch.setattr(lookup, "MAX_CELLS", 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("fields", ARCHITECTURES)
def test_equals_the_hooked_model(fields, dtype):
    _, _, expected, given = both(**fields, dtype=dtype)
    assert given.dtype == expected.dtype == getattr(torch, dtype)
    torch.testing.assert_close(given, expected, **TOLERANCE[dtype])
    assert expected.std() > 0.1


@pytest.mark.parametrize("positions", [[8], [0], [1, 2, 7], list(range(9))])
@pytest.mark.parametrize("n_layers", [1, 2])
def test_any_positions_can_be_asked_for(positions, n_layers):
    _, _, expected, given = both(at=torch.tensor(positions), n_layers=n_layers)
    torch.testing.assert_close(given, expected, **TOLERANCE["float32"])


def test_sequences_may_be_shorter_than_the_context():
    _, _, expected, given = both(tokens=TOKENS[:, :4], at=torch.tensor([1, 3]))
    torch.testing.assert_close(given, expected, **TOLERANCE["float32"])


@pytest.mark.parametrize(
    "fields",
    [
        {"n_layers": 2},
        {"attention": False},
        {"masked": 2},
        {"position_kind": "rotary", "n_layers": 2},
        {"position_kind": "relative", "n_layers": 2},
        {"attention_mix": 0.4, "masked": 0, "n_layers": 2, "attention_dir": "bidirectional"},
    ],
)
def test_gradients_are_equal_too(fields):
    model, params, expected, given = both(**fields, dtype="float64")
    targets = torch.randint(1, 6, (17, 5), generator=seeded(2))
    for output in (expected, given):
        torch.nn.functional.cross_entropy(output.flatten(0, 1), targets.flatten()).backward()
    for name, parameter in model.named_parameters():
        if fields.get("attention") is False and ".attn." in name:
            continue  # held at zero: the hook-free pass leaves them out
        if params[name].grad is None:
            assert not parameter.grad.any(), name
            continue
        torch.testing.assert_close(params[name].grad, parameter.grad, atol=1e-10, rtol=0)
        assert parameter.grad.any() or name.endswith(("b_K", "ln1.b", "ln1.w")), name


def test_the_future_is_not_seen():
    changed = TOKENS.clone()
    changed[:, 5:] = changed[:, 5:] % 5 + 1
    early = torch.tensor([0, 2, 4])
    first, second = (both(tokens=tokens, at=early, n_layers=2)[3] for tokens in (TOKENS, changed))
    assert torch.equal(first, second)


COUNTED = [
    {},
    {"normalization": "LN"},
    {"softmax": False},
    {"attention_dir": "bidirectional", "mlp": False},
    {"d_head": 5, "n_heads": 3},
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("fields", COUNTED)
def test_where_one_silent_token_asks_tokens_are_counted(fields, dtype, monkeypatch):
    fields = {"positions": False, "normalization": "none", "embeddings": "frozen", "silent": -1, **fields}
    tokens, last = torch.cat((TOKENS % 5, torch.full((17, 1), 5)), 1)[:, 1:], torch.tensor([8])
    calls = []
    counting = lookup._counted
    monkeypatch.setattr(lookup, "_counted", lambda *args: calls.append(1) or counting(*args))
    _, params, expected, given = both(tokens, last, dtype=dtype, **fields)
    assert calls
    torch.testing.assert_close(given, expected, **TOLERANCE[dtype])
    found = torch.autograd.grad(given.square().sum(), list(params.values()), allow_unused=True)
    spec = ModelSpec(**{"d_model": 8, "n_heads": 2, "dtype": dtype, **fields})
    plain = logits_of(params, spec, tokens, last, fused=False)
    wanted = torch.autograd.grad(plain.square().sum(), list(params.values()), allow_unused=True)
    assert len(calls) == 1, "the other way does not count"
    for name, one, other in zip(params, found, wanted, strict=True):
        if other is not None and name not in ("embed.W_E", "pos_embed.W_pos"):
            torch.testing.assert_close(one, other, atol=1e-3 if dtype == "float32" else 1e-9, rtol=1e-4)


def test_a_token_far_below_the_others_still_counts_where_it_is_alone():
    fields = {"positions": False, "normalization": "none", "embeddings": "frozen", "silent": -1}
    spec = ModelSpec(d_model=8, n_heads=2, **fields)
    model = random_model(**fields)
    with torch.no_grad():
        model.blocks[0].attn.W_K *= 300
    tokens = torch.tensor([[0, 0, 0, 5], [1, 1, 1, 5], [2, 2, 2, 5], [0, 1, 2, 5]])
    given = logits_of(detached_parameters(model), spec, tokens, torch.tensor([3]))
    torch.testing.assert_close(given, model(tokens)[:, 3:], atol=1e-4, rtol=1e-4)
