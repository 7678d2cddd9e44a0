"""a ledger of the versions that were calibrated on each dataset version"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0014"
down_revision = "0013"

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "calibration_ledger",
        sa.Column("dataset_sha256", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("calibration_id", sa.String(length=32), nullable=False),
        sa.Column("model", sa.String(length=200), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("rates", JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("dataset_sha256", "number", name=op.f("pk_calibration_ledger")),
    )
    op.create_index(
        op.f("ix_calibration_ledger_calibration_id"), "calibration_ledger", ["calibration_id"], unique=True
    )
    # Those that there are, in the order in which they were made.
    op.execute(
        "INSERT INTO calibration_ledger "
        "(dataset_sha256, number, calibration_id, model, version, rates, created_at) "
        "SELECT c.dataset_sha256, ROW_NUMBER() OVER (PARTITION BY c.dataset_sha256 ORDER BY c.created_at, c.id), "
        "c.id, m.name, c.version, '[]', c.created_at "
        "FROM calibrations c JOIN models m ON m.id = c.model_id WHERE c.dataset_sha256 IS NOT NULL"
    )
