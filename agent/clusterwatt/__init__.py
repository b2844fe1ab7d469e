"""clusterwatt: watches the GPUs, network, disks and power of a training node."""

__version__ = "0.1.0"
