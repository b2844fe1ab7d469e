"""A history of the simulated cluster, written without living through it: each value from its time alone."""
