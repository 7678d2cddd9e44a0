"""the name of a job's unlabelled rows"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("unlabelled", sa.String(length=200), nullable=True))
    # Datasets that a job names may be gone: those jobs keep no name.
    op.execute(
        "UPDATE jobs SET unlabelled = (SELECT name || ':' || CAST(version AS VARCHAR(20)) FROM datasets"
        " WHERE datasets.id = jobs.unlabelled_id) WHERE unlabelled_id IS NOT NULL"
    )
