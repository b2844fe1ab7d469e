"""What energy and time are multiplied by: the grid's carbon intensity, and prices."""
