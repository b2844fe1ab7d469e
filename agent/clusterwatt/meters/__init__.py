"""From readings to counters that never fall: energy and time of use."""
