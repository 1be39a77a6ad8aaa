r"""Subspaces of a site: learned for a variable (distributed alignment search), and drawn at random.

With B an orthonormal basis, h the activation on the base and s that on the source, what is exchanged is

    h + B^T B (s - h)

and B is chosen by gradient descent on the cross-entropy of the network's answer with that of the causal model after
the exchange (Geiger, Wu et al. 2023, "Finding alignments between interpretable causal variables and distributed neural
representations"; a basis of k columns as in Wu et al. 2024, "pyvene"). The network's weights stay as they are.

A learned subspace shows that the variable *can be set* there. It does not show that the network sets it there itself:
a direction that holds a little of it, and one that the rest of the network ignores until it is written to, do together
what neither does alone (Makelov et al. 2023, "Is this the subspace you are looking for?"; a sign of it is a subspace
that does more than the whole site). Nor does it show that the subspace is unique, or the smallest. See `search` for
what to compare it with.
"""

from itertools import cycle, islice

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.parametrizations import orthogonal

from mnemoscope.analyses.interchange.counterfactuals import Counterfactuals
from mnemoscope.analyses.interchange.exchange import Subspace, in_parts, patch
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.named import Named
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.seeding import generator
from mnemoscope.core.site import ATTENTION, BY_HEAD, BY_NEURON, Site
from mnemoscope.interventions.recordings import Recordings
from mnemoscope.interventions.regions import check_exists
from mnemoscope.interventions.run import intervened

N_STEPS = 300
LEARNING_RATE = 0.03
BATCH_SIZE = 128


def width(model: HookedModel, site: Site) -> int:
    """Number of dimensions of the vectors at a site.

    Raises:
        InputError: The site does not exist, holds no vectors, or is narrowed to some neurons.
    """
    check_exists(model, site)
    if site.kind in ATTENTION or site.neuron is not None:
        raise InputError(f"a subspace needs a site that holds whole vectors; got {site}; take z, attn_out or mlp_out")
    if site.kind in BY_NEURON:
        return model.cfg.d_mlp
    return model.cfg.d_head if site.kind in BY_HEAD and site.kind != "result" else model.cfg.d_model


def random_basis(d_site: int, k: int, draws: torch.Generator) -> Float[Tensor, "k d_site"]:
    """An orthonormal basis of a subspace, all subspaces being equally likely."""
    return torch.linalg.qr(torch.randn(d_site, k, generator=draws, dtype=torch.double)).Q.T


def random_subspaces(
    model: HookedModel, site: Site, k: int, *, n: int = 20, seed: int = 0
) -> dict[str, tuple[Subspace, ...]]:
    """Places to compare with: random subspaces of k dimensions, as `interchange` takes them.

    Args:
        model: Says how wide the site is.
        site: Where.
        k: Dimensions, from 1 to the site's width.
        n: How many draws.
        seed: Draws come from this seed's stream `random subspaces`.

    Raises:
        InputError: The site does not exist or holds no vectors, or k or n is out of range.
    """
    d_site = width(model, site)
    in_range("k, the dimensions of a subspace", k, 1, d_site)
    in_range("n, the number of random subspaces", n, 1, float("inf"))
    draws = generator(seed, "random subspaces")
    return {f"random {i}": (subspace(site, random_basis(d_site, k, draws), f"random {i}"),) for i in range(n)}


def subspace(site: Site, basis: Float[Tensor, "k d_site"], name: str) -> Subspace:
    """A basis by name, at a site."""
    return Subspace(site=site, basis=Named(name=name, value=basis))


def learn_subspace(
    model: HookedModel,
    wanted: Counterfactuals,
    site: Site,
    k: int,
    *,
    seed: int = 0,
    n_steps: int = N_STEPS,
    learning_rate: float = LEARNING_RATE,
    batch_size: int = BATCH_SIZE,
) -> Float[Tensor, "k d_site"]:
    """The subspace of a site in which exchanging does best what a causal model says: distributed alignment search.

    Adam from a random subspace, on batches of the pairs in turn.

    Args:
        model: Any hooked model through which gradients flow; its weights stay.
        wanted: What should come out, on pairs to fit.
        site: Where; at several positions the subspace is the same at all of them.
        k: Its dimensions, from 1 to the site's width.
        seed: Where the search starts, from this seed's stream `subspace`.
        n_steps: Steps of Adam.
        learning_rate: Of Adam.
        batch_size: Pairs a step.

    Returns:
        An orthonormal basis, a row each, in float64 on the CPU.

    Raises:
        InputError: The site does not exist or holds no vectors, a number is out of range, or a gradient is NaN.
    """
    d_site = width(model, site)
    in_range("k, the dimensions of a subspace", k, 1, d_site)
    for name, given in (("n_steps", n_steps), ("batch_size", batch_size)):
        in_range(name, given, 1, float("inf"))
    rotation = nn.Module()
    rotation.weight = nn.Parameter(random_basis(d_site, k, generator(seed, "subspace")).T.contiguous())
    orthogonal(rotation, orthogonal_map="householder", use_trivialization=False)  # the other way draws at random
    optimizer = torch.optim.Adam(rotation.parameters(), lr=learning_rate)
    recordings, parts = Recordings(model), in_parts(wanted.pairs, batch_size)
    answers = wanted.after.split(batch_size)
    for (base, source), after in islice(cycle(zip(parts, answers, strict=True)), n_steps):
        with torch.enable_grad():
            place = subspace(site, rotation.weight.T, "learned")
            with intervened(model, base, [patch(place, source)], recordings=recordings):
                logits = wanted.causal.due(model(base.inputs), base)
            log_probs = logits.double().log_softmax(-1)
            loss = -torch.where(after > 0, after * log_probs, 0).sum(-1).mean()
            (gradient,) = torch.autograd.grad(loss, list(rotation.parameters()))
        if gradient.isnan().any():
            raise InputError(
                f"the search at {site} has a gradient of NaN at a loss of {float(loss.detach()):g}; check the model's "
                "weights, or take a smaller learning_rate"
            )
        next(iter(rotation.parameters())).grad = gradient
        optimizer.step()
    return rotation.weight.T.detach().cpu()
