"""Galleries: enrolled vectors, searched exactly with a learned similarity."""

from pairmark.service.galleries.galleries import Galleries

__all__ = ["Galleries"]
