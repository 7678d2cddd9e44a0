"""thresholds are not random: the ledger counts versions of a dataset version, and no people"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"

KEPT = "calibration_id, number, dataset_sha256, model, version, created_at"


def upgrade() -> None:
    for column in ("cohort", "dataset_sha256"):
        op.drop_index(op.f(f"ix_calibration_ledger_{column}"), "calibration_ledger")
    op.rename_table("calibration_ledger", "older_ledger")
    op.create_table(
        "calibration_ledger",
        sa.Column("calibration_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("dataset_sha256", sa.String(length=64), nullable=False),
        sa.Column("model", sa.String(length=200), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("calibration_id", name=op.f("pk_calibration_ledger_of_datasets")),
    )
    # Scores made elsewhere had numbers by their people, who are not counted any more.
    op.execute(
        f"INSERT INTO calibration_ledger ({KEPT}) SELECT {KEPT} FROM older_ledger "
        "WHERE dataset_sha256 IS NOT NULL AND model IS NOT NULL"
    )
    op.drop_table("older_ledger")
    op.create_index(op.f("ix_calibration_ledger_dataset_sha256"), "calibration_ledger", ["dataset_sha256"])
    op.drop_table("calibrated_people")
