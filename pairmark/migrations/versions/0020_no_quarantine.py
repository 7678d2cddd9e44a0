"""no marks of versions being loaded, no quarantine"""

from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    op.drop_table("version_loads")
    with op.batch_alter_table("model_versions", schema=None) as batch_op:
        batch_op.drop_column("quarantined_at")
        batch_op.drop_column("quarantine")
