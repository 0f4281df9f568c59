"""Facts about systems: their depths, and where their norms sit, seen in installed packages."""
