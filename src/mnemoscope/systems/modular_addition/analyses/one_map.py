"""One map for all models: every neuron reads one frequency of either number, and writes the sum of its phases.

Neuron n, at the position of the answer, before its ReLU, is fitted by

    h_n(a, b) = m_n + A_n cos(2π k_n a / p - φ_n) + B_n cos(2π k_n b / p - ψ_n),

with the frequency k_n that holds most of its variance, and its effect on the logit of c by its component of that
frequency, C_n cos(2π k_n c / p - χ_n). The map replaces every neuron by its fit, lets it write at the phase
χ_n = φ_n + ψ_n whatever its own is, and drops everything else that reaches the logits:

    logit(c) = Σ_n  C_n relu(h_n(a, b)) cos(2π k_n c / p - φ_n - ψ_n).

Clocks and pizzas by hand are both such maps, with other phases (arXiv 2512.25060). *Shows* that a model can be read so:
`accuracy` of the map, `explained`, the share of the neurons' variance in their fits, and `phases`, the agreement of χ
with φ + ψ (1: equal; 0: unrelated), weighted by what neurons write. *Does not show* that no other reading is as good.
"""

import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope import HookedModel
from mnemoscope.systems.modular_addition.analyses.circles import waves
from mnemoscope.systems.modular_addition.tasks import ModularAddition


@torch.no_grad()
def one_map(model: HookedModel, task: ModularAddition) -> xr.Dataset:
    """`accuracy` over all sequences, `explained` and `phases` of the map made of a model of one layer with ReLUs."""
    p, number = task.modulus, torch.arange(task.modulus)
    last = "blocks.0.mlp.hook_pre"
    _, cache = model.run_with_cache(task.table().inputs, names_filter=last)
    before = cache[last][:, -1].double().view(p, p, -1)
    mean = before.mean((0, 1))
    basis = waves(p)
    of_a, of_b = (
        torch.einsum("fpx,xn->nfp", basis, (before - mean).mean(axis)) for axis in (1, 0)
    )  # [neuron, frequency, cosine or sine]
    power = of_a.square().sum(-1) + of_b.square().sum(-1)
    frequency = power.argmax(1)
    written = (model.blocks[0].mlp.W_out.double() @ dict(model.named_parameters())["unembed.W_U"].double())[:, :p]
    of_c = torch.einsum("fpc,nc->nfp", basis, written)
    phi, psi, chi = (torch.complex(*_chosen(each, frequency).unbind(-1)) for each in (of_a, of_b, of_c))
    wave = torch.complex(*basis[frequency].unbind(1))  # [neuron, number]
    at_a, at_b = ((part.conj()[:, None] * wave).real.T for part in (phi, psi))
    active = (mean + at_a[:, None] + at_b).relu()
    turn = _unit(phi) * _unit(psi)
    answers = (chi.abs() * turn.conj())[:, None] * wave
    guess = torch.einsum("abn,nc->abc", active, answers.real).argmax(-1)
    weight = chi.abs() * torch.minimum(phi.abs(), psi.abs())
    agreement = (weight * (_unit(chi) * turn.conj()).real).sum() / weight.sum().clamp(min=1e-300)
    variance = (before - mean).square().sum((0, 1))
    fitted = p * power.gather(1, frequency[:, None])[:, 0]
    found = {
        "accuracy": float((guess == (number[:, None] + number) % p).double().mean()),
        "explained": float(fitted.sum() / variance.sum().clamp(min=1e-300)),
        "phases": float(agreement),
        "evenness": float(torch.minimum(phi.abs(), psi.abs()).sum() / torch.maximum(phi.abs(), psi.abs()).sum()),
    }
    return xr.Dataset(found, attrs={"unit": "share of the sequences; share of the variance; mean cosine; ratio"})


def _chosen(parts: Float[Tensor, "neuron frequency part"], frequency: Int[Tensor, " neuron"]) -> Tensor:
    return parts[torch.arange(len(parts)), frequency]


def _unit(numbers: Tensor) -> Tensor:
    return numbers / numbers.abs().clamp(min=1e-300)
