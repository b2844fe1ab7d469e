"""The process that talks to the NVIDIA driver, and the agent's end of the pipe to it."""
