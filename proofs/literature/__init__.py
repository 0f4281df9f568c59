"""What the literature states, checked: slips, and what is true instead."""
