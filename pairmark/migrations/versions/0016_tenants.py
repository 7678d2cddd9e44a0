"""tenants: their keys, quotas, and view of the audit log"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

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


def downgrade() -> None:
    # A key would see every name without its tenant.
    op.execute("DELETE FROM sessions WHERE key_id IN (SELECT id FROM api_keys WHERE tenant IS NOT NULL)")
    op.execute("DELETE FROM api_keys WHERE tenant IS NOT NULL")
    for table in SIZED:
        op.drop_column(table, "size_bytes")
    op.drop_index(op.f("ix_audit_tenant"), "audit")
    op.drop_column("audit", "tenant")
    op.drop_index(op.f("ix_jobs_owner_started_at"), "jobs")
    op.drop_column("jobs", "owner")
    op.drop_column("api_keys", "tenant")
    op.drop_table("tenants")
