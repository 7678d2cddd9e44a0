"""jobs that measure galleries"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("task", sa.String(length=32), server_default="training", nullable=False)
        )
        batch_op.add_column(sa.Column("gallery", sa.String(length=200), nullable=True))
        batch_op.add_column(sa.Column("result", JSON, nullable=True))
