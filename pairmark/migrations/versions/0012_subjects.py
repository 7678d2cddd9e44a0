"""calibrations of subjects of several samples, of versions and of galleries"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    with op.batch_alter_table("calibrations", schema=None) as batch_op:
        batch_op.add_column(sa.Column("parent_id", sa.String(length=32), nullable=True))
        batch_op.add_column(sa.Column("subjects", sa.String(length=64), nullable=True))
    op.create_index(
        "ix_calibrations_parent_id_subjects", "calibrations", ["parent_id", "subjects"], unique=True
    )
    with op.batch_alter_table("gallery_calibrations", schema=None) as batch_op:
        batch_op.add_column(sa.Column("aggregation", sa.String(length=16), nullable=True))
