"""tenants: their keys, quotas, and view of the audit log"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0016"
down_revision = "0015"

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
SIZED = ("model_versions", "calibrations")


def upgrade() -> None:
    op.create_table(
        "tenants",
        sa.Column("name", sa.String(length=50), nullable=False),
        sa.Column("quotas", JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_tenants")),
    )
    op.add_column("api_keys", sa.Column("tenant", sa.String(length=50), nullable=True))
    op.add_column(
        "jobs", sa.Column("owner", sa.String(length=64), server_default=sa.text("''"), nullable=False)
    )
    op.create_index(op.f("ix_jobs_owner_started_at"), "jobs", ["owner", "started_at"])
    op.add_column("audit", sa.Column("tenant", sa.String(length=50), nullable=True))
    op.create_index(op.f("ix_audit_tenant"), "audit", ["tenant"])
    for table in SIZED:
        op.add_column(table, sa.Column("size_bytes", sa.BigInteger(), server_default="0", nullable=False))
