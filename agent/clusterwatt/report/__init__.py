"""Reports for people: what jobs used, from the node's ledger or, for a whole cluster, from Prometheus."""
