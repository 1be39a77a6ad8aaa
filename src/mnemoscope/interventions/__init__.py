"""From interventions as values to hooks on a model."""
