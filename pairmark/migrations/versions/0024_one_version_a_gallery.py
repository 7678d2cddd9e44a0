"""galleries have one version, and no evaluations"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("DELETE FROM jobs WHERE task = 'gallery-evaluation'")
    op.drop_table("gallery_evaluations")
    with op.batch_alter_table("galleries") as batch_op:
        batch_op.drop_column("next_model_id")
        batch_op.drop_column("next_version")


def downgrade() -> None:
    with op.batch_alter_table("galleries") as batch_op:
        batch_op.add_column(sa.Column("next_model_id", sa.String(32), nullable=True))
        batch_op.add_column(sa.Column("next_version", sa.Integer(), nullable=True))
    json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
    op.create_table(
        "gallery_evaluations",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column(
            "gallery_id", sa.BigInteger(), sa.ForeignKey("galleries.id", ondelete="CASCADE"), nullable=False
        ),
        sa.Column("result", json, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
    )
    op.create_index("ix_gallery_evaluations_gallery_id", "gallery_evaluations", ["gallery_id"])
