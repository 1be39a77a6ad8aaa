"""How much of its attention each head gives to the opening bracket that has to be closed.

    share = mean over the answers of a skill of pattern[query, match]

`query` is the position at which a closing bracket has to be predicted, `match` that of the innermost open bracket.
`even` is what a head gets that attends to all positions so far alike. Attention is correlational: a head that looks
there need not move the type of the bracket to the answer. The claim of this package asks that.
"""

import torch
import xarray as xr

import mnemoscope as ms


@torch.no_grad()
def match_attention(model: ms.HookedModel, task: ms.Task, batch: ms.Batch) -> xr.Dataset:
    """Attention from every answer to the bracket that it closes.

    Args:
        model: Any hooked model.
        task: Its skills say where answers are due.
        batch: Sequences with a latent `match`.

    Returns:
        `share` over (layer, head, skill) and `even` over skill, both from 0 to 1.

    Raises:
        InputError: The model is too small for the batch, or a skill is tested nowhere in it.
    """
    ms.analyses.check_fits(model, batch)
    skills, match = task.skills(batch), batch.latents["match"]
    pattern = ms.analyses.patterns(model, batch).double()  # batch layer head query key
    key = match.clamp(min=0)[:, None, None, :, None].expand(*pattern.shape[:-1], 1)
    found = pattern.gather(-1, key)[..., 0].permute(1, 2, 0, 3)
    even = (1 / torch.arange(1, match.shape[1] + 1, device=match.device)).expand(match.shape)
    for name, mask in skills.items():
        if not mask.any():
            raise ms.InputError(f"skill {name} is tested at no position of the batch; take more sequences")
    return xr.Dataset(
        {
            "share": (("layer", "head", "skill"), torch.stack([found[..., m].mean(-1) for m in skills.values()], -1)),
            "even": (("skill",), torch.stack([even[m].mean() for m in skills.values()])),
        },
        coords={"skill": list(skills)},
        attrs={"unit": "share of attention", "n_sequences": len(batch)},
    )
