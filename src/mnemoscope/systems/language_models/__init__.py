"""Claims about any language model: published sentences on the circuits of GPT-2 and its like.

`claims run language-models --model smollm2` asks the packaged model; `--model` takes a directory, a GGUF file or a name
on the hub as well. The replicates are the questions that one model is asked, or, of several models, the models.

- `prompts`: repeated random tokens, facts, names; which tokens and words they are made of (`words`).
- `reading`: answers against foils, with parts of the model replaced; heads chosen by score, and random ones.
- `name_heads`: heads that copy names.
- `paths`: what earlier heads add to the keys or the queries of later ones.
- `constructed`: models with weights set by hand, for controls.
- `name_circuit`: who writes a name and who tells it apart.
- `claims`: G1 to G6.
"""
