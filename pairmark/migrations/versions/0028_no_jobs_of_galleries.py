"""no jobs that calibrate galleries"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    jobs = "FROM jobs WHERE task LIKE 'gallery-%'"
    for table in ("job_attempts", "job_events"):
        op.execute(f"DELETE FROM {table} WHERE job_id IN (SELECT id {jobs})")
    op.execute(f"DELETE {jobs}")
    op.drop_column("jobs", "gallery")


def downgrade() -> None:
    op.add_column("jobs", sa.Column("gallery", sa.String(length=200), nullable=True))
