"""the service's secret, and a ledger that counts people"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0015"
down_revision = "0014"

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
KEPT = "calibration_id, dataset_sha256, number, model, version, rates, created_at"


def upgrade() -> None:
    op.create_table(
        "service_secret",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_service_secret")),
    )
    op.create_table(
        "calibrated_people",
        sa.Column("person", sa.String(length=32), nullable=False),
        sa.Column("cohort", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("person", name=op.f("pk_calibrated_people")),
    )
    op.create_index(op.f("ix_calibrated_people_cohort"), "calibrated_people", ["cohort"])
    op.drop_index(op.f("ix_calibration_ledger_calibration_id"), "calibration_ledger")
    op.rename_table("calibration_ledger", "older_ledger")
    op.create_table(
        "calibration_ledger",
        sa.Column("calibration_id", sa.String(length=32), nullable=False),
        sa.Column("cohort", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("dataset_sha256", sa.String(length=64), nullable=True),
        sa.Column("model", sa.String(length=200), nullable=True),
        sa.Column("version", sa.Integer(), nullable=True),
        sa.Column("rates", JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("calibration_id", name=op.f("pk_calibration_people_ledger")),
    )
    # Until now those of one dataset version counted together.
    op.execute(
        f"INSERT INTO calibration_ledger (cohort, {KEPT}) "
        f"SELECT substr(dataset_sha256, 1, 32), {KEPT} FROM older_ledger"
    )
    op.drop_table("older_ledger")
    for column in ("cohort", "dataset_sha256"):
        op.create_index(op.f(f"ix_calibration_ledger_{column}"), "calibration_ledger", [column])
