"""The functions of the simulated NVML library, one file for each area of the driver."""
