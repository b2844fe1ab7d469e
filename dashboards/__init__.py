"""Grafana boards, written in Python and generated as JSON; only `style` knows the library that writes them."""
