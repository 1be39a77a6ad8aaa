"""Analyses of this system: `distances` to exact predictors, `course` along training, `attention` of both layers."""
