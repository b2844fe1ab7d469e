"""The ways out: the page for Prometheus, the page for people."""
