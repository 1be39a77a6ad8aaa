"""A patching figure of a language model: the layers and positions that carry who gave the drink."""

import mnemoscope as ms

model = ms.language_model("smollm2")  # or "gpt2", "EleutherAI/pythia-160m", a directory, a file *.gguf
story = "When {A} and {B} went to the store, {S} gave a drink to"
names = [("John", "Mary"), ("Paul", "Anna"), ("Tom", "James"), ("Kate", "Alice")]
clean = [ms.Prompt.fill(story, A=a, B=b, S=b) for a, b in names]
corrupted = [ms.Prompt.fill(story, A=a, B=b, S=a) for a, b in names]
due, other = ([f" {pair[i]}" for pair in names] for i in (0, 1))
pairs = ms.prompt_pairs(model.tokenizer, clean, corrupted, answers=due, foils=other, name="who gives")
found = ms.patch(model, pairs, kind="resid_pre", over=("layer", "pos"), directions=["denoising"])
effects = ms.analyses.effects(found)
ms.report.patching_figure({"who gives": effects}, "logit_diff").write_html("patching.html")
print(found.attrs["method"], effects.ratio.sel(direction="denoising", metric="logit_diff").round(2).max("layer").values)
