"""A simulated NVML library at the C-call boundary of the real binding."""
