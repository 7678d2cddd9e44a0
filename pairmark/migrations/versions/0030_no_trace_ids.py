"""no ids of W3C traces"""

from alembic import op

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    for table in ("jobs", "audit"):
        op.drop_column(table, "trace_id")
