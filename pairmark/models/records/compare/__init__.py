"""What makes two cells alike: each kind of column says its normal form, its levels and its keys once."""

from pairmark.models.records.compare.kinds import KINDS, LEVELS, ColumnKind, LinkField, register

__all__ = ["KINDS", "LEVELS", "ColumnKind", "LinkField", "register"]
