"""Items of galleries: bodies in, checked rows, stored rows out."""
