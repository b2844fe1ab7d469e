"""Everything that the agent can know: a frozen type for each kind of fact, and the snapshot of them all.

A reading states what a source said at one time, in base units (seconds, bytes, joules, watts, hertz, celsius,
ratios from 0 to 1). `None` means that the source does not offer the quantity: no series appears for it. Zero
is a measurement. Names of fields that become labels are the names of the labels.

Types are grouped by what they describe. A further dimension (sensor, error, mode) is a type of its own, so
that no reading holds a dictionary.
"""
