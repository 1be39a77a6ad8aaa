"""One task a file: generator, latents, counterfactuals, exact references, presets and recipes."""
