"""A recording that still goes on: followed from outside, shown in a terminal and as a page, with warnings."""
