"""The registry of claims: one JSON file a claim, for readers and programs that do not run the library."""
