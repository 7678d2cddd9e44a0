"""Mutants: small breaks of the code that a named test must notice. ``make mutants`` applies them one by one."""
