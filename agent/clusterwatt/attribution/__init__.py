"""From what sources say to shares that sum to one, and from measured joules to booked ones."""
