"""The audit log: who changed what, from what to what, written in the transaction of the change."""
