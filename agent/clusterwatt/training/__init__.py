"""Training runs: TensorBoard files and reports of the training processes themselves."""
