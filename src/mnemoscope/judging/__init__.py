"""From numbers per seed to a verdict: claims, evidence, controls, quantifiers."""
