"""no ids of W3C traces"""

from __future__ import annotations

from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    for table in ("jobs", "audit"):
        op.drop_column(table, "trace_id")
