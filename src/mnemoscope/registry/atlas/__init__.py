"""The atlas: a static site of a registry, with all claims, a page a claim and a paper, and the rates of outcomes."""
