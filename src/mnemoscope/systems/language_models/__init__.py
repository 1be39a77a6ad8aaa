"""Claims about any language model, G1 to G6: published sentences on the circuits of GPT-2 and its like.

`claims run language-models --model smollm2` tests the packaged model; `--model` takes a directory, a GGUF file or a
name on the hub as well. The replicates are the questions put to one model, or, of several models, the models.

`prompts` has the questions, made of sets of `words`; `reading` answers with parts replaced, and random heads;
`name_circuit` and `paths` the heads behind them; `constructed` models with weights set by hand, for controls.
"""
