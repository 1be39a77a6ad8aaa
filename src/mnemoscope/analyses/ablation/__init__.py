"""Ablation: what is lost without a part, dissociation tables, and heads named by what they are needed for."""
