"""backups hold no files any more: the last one is remembered"""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.execute("DELETE FROM backups WHERE finished_at IS NULL")
    with op.batch_alter_table("backups", schema=None) as batch_op:
        batch_op.drop_column("started_at")
        batch_op.drop_column("holds_until")
        batch_op.alter_column("finished_at", existing_type=sa.Double(), nullable=False)
