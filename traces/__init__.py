"""Everything that touches real hardware, and the library of captured profiles."""
