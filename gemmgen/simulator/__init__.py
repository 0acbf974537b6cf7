"""Execution of a lowered kernel on NumPy, with a report of all that is undefined."""
