"""Direct logit attribution and the logit lens."""
