"""Targets for Prometheus, from what a scheduler knows of its nodes."""
