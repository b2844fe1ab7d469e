"""The live page: what it shows of a node, by parts of the page."""
