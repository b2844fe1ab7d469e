"""What energy is multiplied by: carbon intensity and prices, from tables, files or HTTP."""
