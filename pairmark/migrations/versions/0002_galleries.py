"""galleries"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
BYTE_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "galleries",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("key", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("model_id", sa.String(length=32), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("next_model_id", sa.String(length=32), nullable=True),
        sa.Column("next_version", sa.Integer(), nullable=True),
        sa.Column("dimension", sa.Integer(), nullable=False),
        sa.Column("items", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("floor", sa.BigInteger(), nullable=False),
        sa.Column("fields", JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_galleries")),
        sa.UniqueConstraint("name", name=op.f("uq_galleries_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "gallery_items",
        sa.Column("gallery_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("id", BYTE_TEXT, nullable=False),
        sa.Column("subject", BYTE_TEXT, nullable=True),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=True),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("gallery_id", "id", name=op.f("pk_gallery_items")),
    )
    with op.batch_alter_table("gallery_items", schema=None) as batch_op:
        batch_op.create_index("ix_gallery_items_seq", ["gallery_id", "seq"], unique=True)
        batch_op.create_index("ix_gallery_items_subject", ["gallery_id", "subject"], unique=False)
    if op.get_bind().dialect.name == "postgresql":
        # Vectors do not compress; trying to would cost more than writing them.
        op.execute("ALTER TABLE gallery_items ALTER COLUMN vector SET STORAGE EXTERNAL")

    op.create_table(
        "gallery_removals",
        sa.Column("gallery_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("removed", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("erased", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("gallery_id", "seq", "removed", name=op.f("pk_gallery_removals")),
    )
    op.create_table(
        "gallery_calibrations",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("gallery_id", SERIAL, nullable=False),
        sa.Column("model_id", sa.String(length=32), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("best", sa.LargeBinary(), nullable=False),
        sa.Column("mated", sa.LargeBinary(), nullable=False),
        sa.Column("summary", JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["gallery_id"],
            ["galleries.id"],
            name=op.f("fk_gallery_calibrations_gallery_id_galleries"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gallery_calibrations")),
    )
    with op.batch_alter_table("gallery_calibrations", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_gallery_calibrations_gallery_id"), ["gallery_id"], unique=False)

    op.create_table(
        "gallery_evaluations",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("gallery_id", SERIAL, nullable=False),
        sa.Column("result", JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["gallery_id"],
            ["galleries.id"],
            name=op.f("fk_gallery_evaluations_gallery_id_galleries"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gallery_evaluations")),
    )
    with op.batch_alter_table("gallery_evaluations", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_gallery_evaluations_gallery_id"), ["gallery_id"], unique=False)
