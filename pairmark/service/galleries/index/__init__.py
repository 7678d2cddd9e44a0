"""The index of a gallery: blocks, the view of one moment, and exact search in it."""
