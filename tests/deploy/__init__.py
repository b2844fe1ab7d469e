"""What is deployed: unit files, charts, images."""
