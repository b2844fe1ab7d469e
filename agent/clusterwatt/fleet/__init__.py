"""A simulated cluster in one process: every node is the real pipeline on a simulated driver and sources."""
