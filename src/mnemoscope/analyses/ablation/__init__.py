"""Ablation: skills lost without a part, dissociation tables, and heads named by the skills that need them."""
