"""The Grafana boards as they are shipped, and how they are handed to a Grafana.

The boards are generated into `dashboards/json`. The folder `shipped` is a link to it, which a wheel has as
files: there is one copy.
"""
