"""The alert and recording rules for Prometheus: how a site changes them, and how they are tested.

The rules themselves are plain YAML in `deploy/prometheus`, their scenarios in `tests/rules/scenarios`. The
folder `shipped` holds links to both, which a wheel has as files: there is one copy of each to edit.
"""
