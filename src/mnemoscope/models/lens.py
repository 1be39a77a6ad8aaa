"""What is taken from TransformerLens, whichever line of it is installed; nothing else asks which.

3.9 has `HookedTransformer`. 4.0 removed it with its configuration and its conversions of language models; there the
package's own take their place, with the same names, hooks, weights and numbers (`mnemoscope.models.hooked`).
"""

import importlib.util
from typing import TYPE_CHECKING

from transformer_lens import TransformerLensKeyValueCache as TransformerLensKeyValueCache
from transformer_lens import TransformerLensKeyValueCacheEntry as TransformerLensKeyValueCacheEntry

HAS_HOOKED_TRANSFORMER = importlib.util.find_spec("transformer_lens.HookedTransformer") is not None
"""Whether TransformerLens's own is used: the line is 3."""

if TYPE_CHECKING or HAS_HOOKED_TRANSFORMER:
    from transformer_lens import HookedTransformer as HookedTransformer
    from transformer_lens import HookedTransformerConfig as HookedTransformerConfig
    from transformer_lens.components.attention import Attention as Attention
    from transformer_lens.loading_from_pretrained import get_official_model_name as get_official_model_name
else:
    from transformer_lens.supported_models import get_official_model_name as get_official_model_name

    from mnemoscope.models.hooked.attention import Attention as Attention
    from mnemoscope.models.hooked.config import HookedTransformerConfig as HookedTransformerConfig
    from mnemoscope.models.hooked.transformer import HookedTransformer as HookedTransformer
