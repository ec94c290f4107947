"""Solvers: matrices of units in, orders out."""
