# Keeps the type checker from reading all model families, which TransformerLens names and we do not use.
from typing import Any

def __getattr__(name: str) -> Any: ...
