"""Claims F2 to F4: two mechanisms (F2), convergence of linear attention (F3), and hallucination before it (F4)."""
