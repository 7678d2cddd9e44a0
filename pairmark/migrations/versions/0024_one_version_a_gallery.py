"""galleries have one version, and no evaluations"""

from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    op.execute("DELETE FROM jobs WHERE task = 'gallery-evaluation'")
    op.drop_table("gallery_evaluations")
    with op.batch_alter_table("galleries") as batch_op:
        batch_op.drop_column("next_model_id")
        batch_op.drop_column("next_version")
