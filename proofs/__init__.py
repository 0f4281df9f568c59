"""Claims about the placement of the norm, one readable file per area; derive never imports it."""
