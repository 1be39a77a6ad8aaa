"""Words on one sequence of in-context bigrams and noisy recall: triggers, outputs, and earlier cases."""

from mnemoscope import Batch
from mnemoscope.report import token_symbols
from mnemoscope.systems.in_context_bigrams.triggers import TriggerTask


def known_of(task: TriggerTask, batch: Batch) -> list[str]:
    """The knowledge at every position of one sequence.

    Where triggers are known: that one stands here, how often it has by now, and what the context has shown of its
    output. Else, as in a typed sequence: where the token stood last, and what followed it, which is what an induction
    head copies.
    """
    symbols, tokens = token_symbols(task), batch.inputs[0].tolist()
    latents = {name: batch.latents[name][0].tolist() for name in ("trigger", "occurrence")}
    outputs, hidden = batch.known["outputs"][0].tolist(), bool((batch.known["triggers"] < 0).all())
    words = []
    for pos, token in enumerate(tokens):
        before = [earlier for earlier in range(pos) if tokens[earlier] == token]
        if hidden:
            words.append(f"stood at {before[-1]}, before {symbols[tokens[before[-1] + 1]]}" if before else "")
            continue
        trigger, times = latents["trigger"][pos], latents["occurrence"][pos]
        if trigger < 0:
            words.append("")
            continue
        output = outputs[trigger]
        n = sum(tokens[earlier + 1] == output for earlier in before)
        told = f"output {symbols[output]} shown {n} time{'s' if n > 1 else ''}" if n else "output not shown yet"
        words.append(f"trigger, occurrence {times}; {told}")
    return words
