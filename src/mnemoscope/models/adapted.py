"""Hook points on a model that nothing converts: a module of the transformers library, or any module that gives logits.

The points are `hook_embed`, `hook_resid_pre`, `hook_attn_out`, `hook_mlp_out` and `hook_resid_post` of every block, and
`hook_logits`. Each stands for the input or the output of a submodule (`discovery` finds them) and passes on what its
functions return. The module itself has hooks only during a pass. Heads, neurons and weights have no names here, so
analyses that need them are refused; patches, ablations and reads at the points work.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from mnemoscope.core.errors import InputError
from mnemoscope.models.discovery import Place, find_places, first_tensor, pass_options
from mnemoscope.models.hooked.points import HookedModule, HookPoint, Names

Acts = Mapping[Place, Callable[[Tensor], Tensor]]
"""A function of the tensor at each place, in the order in which a pass comes to them."""
Runner = Callable[[nn.Module, Tensor, Acts, Mapping[str, Any]], Any]
"""Runs a module on tokens, with a function at each place and further arguments; gives its output."""


class MissingPartError(InputError, AttributeError, KeyError):
    """A hook point, module or weight that an adapted model does not have."""

    def __init__(self, name: str):
        super().__init__(
            f"an adapted model has no {name}; its hook points are the embedding, attn_out, mlp_out, the residual "
            "stream before and after each block, and the logits; ms.language_model converts common architectures whole"
        )

    def __str__(self) -> str:
        return str(self.args[0])


def change_first(given: Any, act: Callable[[Tensor], Tensor]) -> Any:
    """The input or output of a module, with its first tensor changed; None where it stays."""
    x = first_tensor(given)
    if x is None or (new := act(x)) is x:
        return None
    return type(given)((new, *given[1:])) if isinstance(given, tuple | list) else new


def run_plainly(module: nn.Module, tokens: Tensor, acts: Acts, options: Mapping[str, Any]) -> Any:
    """A pass with hooks that are there for this pass only."""
    with ExitStack() as stack:
        for place, act in acts.items():
            stack.callback(_put(module.get_submodule(place.module), place, act).remove)
        return module(tokens, **options)


def _put(module: nn.Module, place: Place, act: Callable[[Tensor], Tensor]) -> Any:
    def change_input(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if given:
            return None if (new := change_first(given, act)) is None else (new, named)
        first = next(iter(named))
        return (), {**named, first: act(named[first])}

    if place.side == "input":
        return module.register_forward_pre_hook(change_input, with_kwargs=True)
    return module.register_forward_hook(lambda _, given, output: change_first(output, act))


def _pass(point: HookPoint, tokens: Tensor, x: Tensor) -> Tensor:
    """The tensor behind a hook point, which always gets `batch pos`; some modules have one axis for both.

    It is a copy, since some modules add to their inputs in place.
    """
    if not point.has_hooks() and not point._forward_hooks:
        return x
    return point(x if x.ndim > 2 else x.view(*tokens.shape, -1)).clone().reshape(x.shape)


class _Part(nn.Module):
    """A module that says in one line what it lacks."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            raise MissingPartError(name) from None


class _Activations(dict[str, Tensor]):
    def __missing__(self, name: str) -> Tensor:
        raise MissingPartError(name)


class AdaptedModel(_Part, HookedModule):
    """A module with hook points; `from_transformers` and `from_nnsight` make one."""

    is_adapted: ClassVar = True

    def __init__(self, module: nn.Module, tokenizer: Any, names: Mapping[str, str] | None, run: Runner):
        super().__init__()
        self.original_model, self.tokenizer, self._run = module, tokenizer, run
        self.places, self.cfg = find_places(module, names or {})
        self.blocks = nn.ModuleList(_Part() for _ in range(self.cfg.n_layers))
        self.hook_dict = {name: HookPoint() for name in (*self.places, "hook_logits")}
        for name, point in self.hook_dict.items():
            within, _, end = name.rpartition(".")
            self.get_submodule(within).add_module(end, point)
            point.name = name

    def forward(
        self,
        input: Int[Tensor, "batch pos"],
        return_type: str | None = "logits",
        attention_mask: Int[Tensor, "batch pos"] | None = None,
    ) -> Float[Tensor, "batch pos d_vocab"] | None:
        """Logits of tokens; the mask is 1 for tokens and 0 for padding."""
        if return_type not in ("logits", None):
            raise InputError(f"return_type must be 'logits' or None for an adapted model; got {return_type!r}")
        acts = {place: partial(_pass, self.hook_dict[name], input) for name, place in self.places.items()}
        module = self.original_model  # here: a copy of this model runs the copy of the module
        output = first_tensor(self._run(module, input, acts, pass_options(module, attention_mask)))
        assert output is not None
        logits = self.hook_dict["hook_logits"](output)
        return logits if return_type else None

    def run_with_cache(self, *args: Any, return_cache_object: bool = True, **kwargs: Any) -> tuple[Any, Any]:
        """The output, and activations by the names of their hook points."""
        output, found = super().run_with_cache(*args, **kwargs)
        return output, _Activations(found)

    def _named(self, names: Names) -> list[str]:
        if isinstance(names, str) and names not in self.hook_dict:
            raise MissingPartError(names)
        return super()._named(names)


def from_transformers(
    module: nn.Module, tokenizer: Any = None, *, names: Mapping[str, str] | None = None
) -> AdaptedModel:
    """Give hook points to a module of the transformers library, or to another one that turns tokens into logits.

    The module stays as it is. `ms.language_model` converts common architectures into a HookedTransformer, which has
    every hook point; this is the way in for the others.

    Args:
        module: Takes tokens `batch pos`, and gives logits, or an output with `logits`.
        tokenizer: That of the model, for texts.
        names: Submodules, where structure does not show them: `embed`, the embedding; `blocks`, the list of blocks;
            `attn_out` and `mlp_out`, the submodules of a block whose outputs are added to the stream.

    Raises:
        InputError: No blocks are found that follow one another, or a named submodule does not exist or add up.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> sizes = {"n_embd": 16, "n_layer": 2, "n_head": 4, "vocab_size": 50, "bos_token_id": 1, "eos_token_id": 1}
    >>> model = ms.models.from_transformers(GPT2LMHeadModel(GPT2Config(**sizes)).eval())
    >>> [name for name in model.hook_dict if name.startswith("blocks.1")]
    ['blocks.1.hook_resid_pre', 'blocks.1.hook_attn_out', 'blocks.1.hook_mlp_out', 'blocks.1.hook_resid_post']
    """
    if not isinstance(module, nn.Module):
        raise InputError(f"module must be a torch module; got {type(module).__name__}: ms.language_model loads by name")
    return AdaptedModel(module, tokenizer, names, run_plainly)
