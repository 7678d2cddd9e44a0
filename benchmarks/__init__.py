"""Benchmarks: one file a claim, side by side with peers in the same run."""
