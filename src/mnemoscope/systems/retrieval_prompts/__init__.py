"""Retrieval and conditional retrieval as prompts for language models (S9).

- `questions`: five formulations with several interleaved chains each, the correct answer and the acceptable ones.
- `reading`: prompts that a model reads once, and what it makes of continuations.
- `scoring`: the most probable acceptable answer, and sampling until an acceptable one comes out.
- `accuracy`: accuracy over difficulties against chance, resumable.
- `commands`: `mnemoscope prompts retrieval`.

Source: Mușat, Mechanism and Emergence of Stacked Attention Heads in Multi-Layer Transformers, section 4 and appendix A.
"""
