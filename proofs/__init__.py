"""Claims about the placement of the norm, one readable file per area; imports derive, never the reverse."""
