"""galleries keep the probes of their calibrations, so that thresholds follow every write and erasure"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

BYTE_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    with op.batch_alter_table("gallery_calibrations", schema=None) as batch_op:
        batch_op.add_column(sa.Column("kept", sa.LargeBinary(), nullable=True))
        batch_op.add_column(sa.Column("revision", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_table(
        "gallery_probes",
        sa.Column("calibration_id", sa.String(length=32), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("gallery_id", sa.BigInteger(), nullable=False),
        sa.Column("subject", BYTE_TEXT, nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["calibration_id"],
            ["gallery_calibrations.id"],
            name=op.f("fk_gallery_probes_calibration_id_gallery_calibrations"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("calibration_id", "place", name=op.f("pk_gallery_probes")),
    )
    op.create_index("ix_gallery_probes_subject", "gallery_probes", ["gallery_id", "subject"])
