"""Configuration: the typed model, and how it is loaded."""
