"""The index of a gallery: segments, the view of one moment, and exact search in it."""
