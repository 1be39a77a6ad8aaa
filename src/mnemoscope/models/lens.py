"""All that is taken from TransformerLens, whichever line of it is installed; nothing else knows which.

3.9 has `HookedTransformer`. 4.0 removed it with its configuration and its conversions of language models; there the
package's own take their place, with the same names, hooks, weights and numbers (`mnemoscope.models.hooked`).

Importing TransformerLens takes longer than most commands on our own runs. So the classes here are stand-ins, which
import the real ones when they are called or an attribute is read. `isinstance` needs no import: it goes by the name
of the class, so that the package's own counts as TransformerLens's on both lines.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

HAS_HOOKED_TRANSFORMER = int(version("transformer-lens").split(".")[0]) < 4
"""True where TransformerLens's own class is used: the line is 3."""

if TYPE_CHECKING:
    from transformer_lens import FactoredMatrix as FactoredMatrix
    from transformer_lens import HookedTransformer as HookedTransformer
    from transformer_lens import HookedTransformerConfig as HookedTransformerConfig
    from transformer_lens import TransformerLensKeyValueCache as TransformerLensKeyValueCache
    from transformer_lens import TransformerLensKeyValueCacheEntry as TransformerLensKeyValueCacheEntry
else:

    class _Deferred(type):
        """A class that stands for one of another module, with the same name."""

        def real(cls) -> type:
            found = getattr(import_module(cls.module), cls.__name__)
            activations = import_module("transformer_lens.utilities.activation_functions").SUPPORTED_ACTIVATIONS
            activations.setdefault("identity", lambda x: x)  # TransformerLens has none
            return found

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return cls.real()(*args, **kwargs)

        def __getattr__(cls, name: str) -> Any:
            return getattr(cls.real(), name)

        def __instancecheck__(cls, instance: object) -> bool:
            return any(base.__name__ == cls.__name__ for base in type(instance).__mro__)

    def _deferred(name: str, module: str = "transformer_lens") -> type:
        return _Deferred(name, (), {"module": module, "__module__": __name__})

    _own = None if HAS_HOOKED_TRANSFORMER else "mnemoscope.models.hooked."
    HookedTransformer = _deferred("HookedTransformer", f"{_own}transformer" if _own else "transformer_lens")
    HookedTransformerConfig = _deferred("HookedTransformerConfig", f"{_own}config" if _own else "transformer_lens")
    FactoredMatrix = _deferred("FactoredMatrix")
    TransformerLensKeyValueCache = _deferred("TransformerLensKeyValueCache")
    TransformerLensKeyValueCacheEntry = _deferred("TransformerLensKeyValueCacheEntry")


def official_model_name(name: str) -> str:
    """TransformerLens's name of a published model, from one of its shorter names; ValueError where it knows none."""
    where = "loading_from_pretrained" if HAS_HOOKED_TRANSFORMER else "supported_models"
    return import_module(f"transformer_lens.{where}").get_official_model_name(name)
