"""The page of dcgm-exporter, made from our readings: /dcgm/metrics, for boards and alerts that expect it."""
