"""Reporting: result files in, tables and pictures out. No torch; matplotlib only under plots/."""
