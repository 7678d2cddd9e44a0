"""Calibrating and measuring galleries: probes, and thresholds that follow every write."""
