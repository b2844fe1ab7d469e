"""The NVIDIA driver through its binding: a session, its devices, its errors."""
