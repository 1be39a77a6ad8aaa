"""Laws that every hooked model keeps, a check of a model against them, and a fault for each that breaks it."""
