"""Claims F1 to F4: how many facts are learned (F1), two mechanisms (F2), convergence of linear attention (F3), and the
phase of hallucination before it (F4).
"""
