"""An audit of one model: which effects on prompts could be chance, and what is left of them on other prompts."""
