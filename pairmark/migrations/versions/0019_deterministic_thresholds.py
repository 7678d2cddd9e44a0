"""thresholds are not random: the ledger counts versions of a dataset version, and no people"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
KEPT = "calibration_id, number, dataset_sha256, model, version, created_at"


def upgrade() -> None:
    _replace_ledger(
        sa.Column("dataset_sha256", sa.String(length=64), nullable=False),
        sa.Column("model", sa.String(length=200), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        key="pk_calibration_ledger_of_datasets",
        dropped=("cohort", "dataset_sha256"),
        indexed=("dataset_sha256",),
    )
    op.drop_table("calibrated_people")


def downgrade() -> None:
    op.create_table(
        "calibrated_people",
        sa.Column("person", sa.String(length=32), nullable=False),
        sa.Column("cohort", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("person", name=op.f("pk_calibrated_people")),
    )
    op.create_index(op.f("ix_calibrated_people_cohort"), "calibrated_people", ["cohort"])
    _replace_ledger(
        sa.Column("dataset_sha256", sa.String(length=64), nullable=True),
        sa.Column("model", sa.String(length=200), nullable=True),
        sa.Column("version", sa.Integer(), nullable=True),
        sa.Column("cohort", sa.String(length=32), nullable=False),
        sa.Column("rates", JSON, nullable=False),
        key="pk_calibration_people_ledger",
        dropped=("dataset_sha256",),
        indexed=("cohort", "dataset_sha256"),
        more={"cohort": "substr(dataset_sha256, 1, 32)", "rates": "'[]'"},
    )


def _replace_ledger(
    *columns: sa.Column[object],
    key: str,
    dropped: tuple[str, ...],
    indexed: tuple[str, ...],
    more: dict[str, str] | None = None,
) -> None:
    """Copy the entries of versions into a table of other columns."""
    for column in dropped:
        op.drop_index(op.f(f"ix_calibration_ledger_{column}"), "calibration_ledger")
    op.rename_table("calibration_ledger", "older_ledger")
    op.create_table(
        "calibration_ledger",
        sa.Column("calibration_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        *columns,
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("calibration_id", name=op.f(key)),
    )
    names, values = ", ".join([KEPT, *(more or {})]), ", ".join([KEPT, *(more or {}).values()])
    # Scores made elsewhere had numbers by their people, who are not counted any more.
    op.execute(
        f"INSERT INTO calibration_ledger ({names}) SELECT {values} FROM older_ledger "
        "WHERE dataset_sha256 IS NOT NULL AND model IS NOT NULL"
    )
    op.drop_table("older_ledger")
    for column in indexed:
        op.create_index(op.f(f"ix_calibration_ledger_{column}"), "calibration_ledger", [column])
