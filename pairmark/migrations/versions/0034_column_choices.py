"""choices of columns that were asked for, which a restart works out again"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0034"
down_revision = "0033"


def upgrade() -> None:
    json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
    calibration = sa.ForeignKey("calibrations.id", ondelete="CASCADE")
    op.create_table(
        "column_choices",
        sa.Column("calibration_id", sa.String(32), calibration, primary_key=True),
        sa.Column("code", sa.LargeBinary, primary_key=True),
        sa.Column("request", json, nullable=False),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("asked_at", sa.Double(), nullable=False),
    )
