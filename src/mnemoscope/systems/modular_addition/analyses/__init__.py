"""Measurements on models that add modulo p: circles, the forms of logits, gradients, and one map for all neurons."""
