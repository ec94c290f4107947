"""The permutation spec: plain data that says which units every tensor axis indexes."""
