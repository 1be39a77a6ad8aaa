"""The test whether neurons fire for inputs whose answer their value promotes.

Three measures for each neuron, over the tokens t that occur as a target:

- `correlation`: Pearson's r, over t, between the mean activation given target t and the value's logit for t,
- `trigger_agreement`: the share of the neuron's trigger examples whose target is the token that the value promotes
  most (Geva et al., 2021, section 4, who compare the top token with the next token of the strongest trigger),
- `trigger_conflict`: the share whose target is the token that it suppresses most. A neuron that fires on everything
  but t and writes against t agrees by having no such trigger; its top token means little.

The control gives the tokens of all values another order, the same for all neurons, many times. `correlation_p` and
`trigger_agreement_p` are the shares of orders (the true one among them) whose mean over neurons is at least as large,
`trigger_conflict_p` of those whose mean is at most as large. All neurons share the order, so that neurons that resemble
each other do not count as independent evidence. With V tokens there are V! orders: below five a p says little.

It shows that what a layer writes agrees with when it writes, as a memory's values agree with its keys. It does not show
that the model's answers come from there (see `neuron_effects`). The value is its direct effect on the logits: in an
early layer a value that later layers translate agrees with nothing. A neuron that fires on used-up answers and
suppresses them agrees as well, since it is silent where they are the target.
"""

import math

import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.analyses.neurons.activity import NeuronActivity, top_rows
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.numerics import quantised
from mnemoscope.core.seeding import generator


def neuron_agreement(
    activity: NeuronActivity, values: xr.Dataset, *, n_triggers: int = 10, n_draws: int = 200, seed: int = 0
) -> xr.Dataset:
    """Agreement of keys and values.

    The targets of `activity` are the answers. `values` are of all neurons of the same model and layer. A neuron that is
    active on fewer rows has fewer triggers. Orders of the tokens for the control come from the seed's stream `control`.
    Raises InputError where values are of other neurons, fewer than three tokens occur as a target, or no triggers or
    draws are wanted.

    Returns:
        `correlation`, `trigger_agreement` and `trigger_conflict` over neuron, NaN for a neuron that is never active,
        and `correlation` also where activation or value is the same for all tokens; `top_token` over neuron;
        `activation`, the mean given the target, and `value` over (neuron, token). For each measure its mean over
        neurons (`correlation_mean`, ...), that of every draw of the control (`correlation_control`, ..., over draw) and
        `correlation_p`, ....
    """
    in_range("n_triggers", n_triggers, 1, math.inf)
    in_range("n_draws", n_draws, 1, math.inf)
    _check_same_neurons(activity, values)
    tokens, target = activity.latents["target"].unique(return_inverse=True)
    if len(tokens) < 3:
        raise InputError(f"agreement compares answers, at least three; the targets are {tokens.tolist()}")
    given = _mean_by_target(activity, target, len(tokens))
    value = torch.from_numpy(values.value.sel(token=tokens.cpu().numpy()).values).to(given)
    triggered = _trigger_targets(activity, target, len(tokens), n_triggers)

    def measured(value: Tensor) -> dict[str, Float[Tensor, " neuron"]]:
        top, bottom = value.argmax(1, keepdim=True), value.argmin(1, keepdim=True)
        return {
            "correlation": _correlation(given, value),
            "trigger_agreement": triggered.gather(1, top)[:, 0],
            "trigger_conflict": triggered.gather(1, bottom)[:, 0],
        }

    stream = generator(seed, "control")
    orders = [torch.randperm(len(tokens), generator=stream).to(given.device) for _ in range(n_draws)]
    true, drawn = measured(value), [measured(value[:, order]) for order in orders]
    arrays = {
        "activation": (("neuron", "token"), given),
        "value": (("neuron", "token"), value),
        "top_token": (("neuron",), tokens[value.argmax(1)]),
        **{name: (("neuron",), figures) for name, figures in true.items()},
        **_against_control(true, drawn),
    }
    return xr.Dataset(
        {name: (dims, figures.cpu().numpy()) for name, (dims, figures) in arrays.items()},
        coords={"neuron": values.neuron, "token": tokens.cpu().numpy()},
        attrs={"layer": activity.layer, "n": len(activity.batch), "n_triggers": n_triggers, "path": "direct"},
    )


def _check_same_neurons(activity: NeuronActivity, values: xr.Dataset) -> None:
    n, layer = activity.activation.shape[1], values.attrs["layer"]
    if layer != activity.layer or values.neuron.values.tolist() != list(range(n)):
        given = f"{values.sizes['neuron']} of layer {layer}"
        raise InputError(f"values must be those of all {n} neurons of layer {activity.layer}, in order; got {given}")


def _mean_by_target(activity: NeuronActivity, target: Tensor, n_tokens: int) -> Float[Tensor, "neuron token"]:
    weights, values = activity.weights, torch.arange(n_tokens, device=target.device)
    member = (target[:, None] == values) * weights[:, None]
    return torch.einsum("rn,rt->nt", activity.activation, member / member.sum(0))


def _trigger_targets(
    activity: NeuronActivity, target: Int[Tensor, " row"], n_tokens: int, n: int
) -> Float[Tensor, "neuron token"]:
    """The distribution of the targets of each neuron's trigger examples; NaN without any."""
    rows = top_rows(activity, n)
    values = torch.arange(n_tokens, device=target.device)
    member = (target[rows][:, :, None] == values) & (rows >= 0)[:, :, None]
    return member.double().sum(1) / (rows >= 0).sum(1, keepdim=True)


def _correlation(left: Float[Tensor, "neuron token"], right: Float[Tensor, "neuron token"]) -> Float[Tensor, " neuron"]:
    """Pearson's r over tokens; NaN where one side does not vary."""
    sides = [side - side.mean(1, keepdim=True) for side in (left, right)]
    flat = [(quantised(side) == 0).all(1) for side in sides]
    lengths = sides[0].norm(dim=1) * sides[1].norm(dim=1)
    return ((sides[0] * sides[1]).sum(1) / lengths).masked_fill(flat[0] | flat[1], torch.nan)


def _against_control(
    true: dict[str, Tensor], drawn: list[dict[str, Tensor]]
) -> dict[str, tuple[tuple[str, ...], Tensor]]:
    """Means over neurons, those of every draw, and how often a draw agrees at least as well."""
    result: dict[str, tuple[tuple[str, ...], Tensor]] = {}
    for name, figures in true.items():
        mean, control = figures.nanmean(), torch.stack([draw[name].nanmean() for draw in drawn])
        sign = -1 if name == "trigger_conflict" else 1
        p = (1 + (sign * control >= sign * mean - 1e-12).sum()) / (1 + len(control))
        p = torch.where(mean.isnan(), torch.nan, p)
        result |= {f"{name}_mean": ((), mean), f"{name}_control": (("draw",), control), f"{name}_p": ((), p)}
    return result
