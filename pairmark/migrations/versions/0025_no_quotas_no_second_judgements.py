"""no quotas of tenants; reviews without second judgements and queues of uncertain pairs"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
SIZED = ("model_versions", "calibrations")


def upgrade() -> None:
    uncertain = "(SELECT id FROM reviews WHERE question = 'uncertain')"
    for table in ("review_judgements", "review_items"):
        op.execute(f"DELETE FROM {table} WHERE review_id IN {uncertain}")
    op.execute("DELETE FROM reviews WHERE question = 'uncertain'")
    models = sa.table("models", sa.column("id"), sa.column("reviews", JSON))
    connection = op.get_bind()
    for model_id, policy in connection.execute(sa.select(models.c.id, models.c.reviews)).all():
        if policy and "fall_back" in policy:
            kept = {name: value for name, value in policy.items() if name != "fall_back"}
            connection.execute(sa.update(models).where(models.c.id == model_id).values(reviews=kept))
    for table in ("reviews", "review_items"):
        op.drop_column(table, "twice")
    for table in SIZED:
        op.drop_column(table, "size_bytes")
    op.drop_table("tenants")


def downgrade() -> None:
    op.create_table(
        "tenants",
        sa.Column("name", sa.String(length=50), nullable=False),
        sa.Column("quotas", JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_tenants")),
    )
    for table in SIZED:
        op.add_column(table, sa.Column("size_bytes", sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("review_items", sa.Column("twice", sa.Boolean(), server_default="0", nullable=False))
    op.add_column("reviews", sa.Column("twice", sa.Double(), server_default="0", nullable=False))
