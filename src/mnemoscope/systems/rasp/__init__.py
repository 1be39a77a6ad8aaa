"""RASP programs that Tracr compiled into transformers: circuits that are known because a compiler wrote them.

`programs` has the answers of every program in plain Python; `tasks` prompts, answers and minimal pairs; `compiled` the
weights and the circuit of every program, as Tracr gave them; `models` loads them, and makes variants in which zeros do
not give the circuit away; `circuits` registers them as known circuits.

RASP: Weiss et al. 2021. Tracr: Lindner et al. 2023.
"""
