"""no jobs that calibrate galleries"""

from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    jobs = "FROM jobs WHERE task LIKE 'gallery-%'"
    for table in ("job_attempts", "job_events"):
        op.execute(f"DELETE FROM {table} WHERE job_id IN (SELECT id {jobs})")
    op.execute(f"DELETE {jobs}")
    op.drop_column("jobs", "gallery")
