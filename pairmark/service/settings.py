"""Every setting, from ``PAIRMARK_*`` in the environment."""

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

MIB = 1024 * 1024


class Settings(BaseSettings):
    """Where things are kept, and the bounds on everything a client can send or start."""

    model_config = SettingsConfigDict(env_prefix="PAIRMARK_", extra="ignore")

    home: Path = Field(Path("var"), description="folder of the embedded database and of stored files")
    database_url: str | None = Field(
        None,
        description="address of a PostgreSQL database (postgresql://...); default: SQLite in PAIRMARK_HOME",
    )
    database_timeout_s: float = Field(
        30.0,
        ge=0.1,
        description="seconds that one statement may take on PostgreSQL, or wait for the lock on SQLite; requests that "
        "need the database are then refused with 503. Migrations and backups may take longer",
    )
    artefacts: str | None = Field(
        None,
        description="folder or s3://bucket/prefix of datasets and models; default: PAIRMARK_HOME/artefacts",
    )
    dask_scheduler: str | None = Field(
        None,
        description="address of a Dask scheduler, e.g. tcp://scheduler:8786: its workers grow forests, search large "
        "galleries and compare records that are linked; default: none",
    )
    url: str | None = Field(
        None,
        description="address of a running service that the command line calls; default: none, the command line opens "
        "the database itself",
    )
    api_key: SecretStr | None = Field(None, description="API key that the client and the command line send")

    metrics_public: bool = Field(False, description="whether /metrics needs no key")
    log_level: str = Field("INFO", description="least level of log lines: DEBUG, INFO, WARNING or ERROR")
    audit_retention_days: float | None = Field(
        None, gt=0, description="days after which workers remove audit entries; default: never"
    )
    review_images: str = Field(
        "",
        pattern=r"^$|^https?://[A-Za-z0-9.:-]+/.*\{ref\}",
        description="address of pictures that the console shows to reviewers, such as "
        "https://pictures.example.com/{ref}.jpg; {ref} is the caller's name of a side. Default: none",
    )
    webhook_hosts: str = Field(
        "",
        description="hosts that webhooks may be on, with their port if it is not 443, separated by commas; "
        "`http://host:port` allows messages that are not encrypted. Default: none",
    )

    max_body_bytes: int = Field(64 * MIB, description="largest binary body of a scoring request, in bytes")
    max_json_bytes: int = Field(
        8 * MIB,
        description="largest JSON body of vectors, records, items, scores, outcomes or candidates, in bytes",
    )
    max_control_bytes: int = Field(MIB, description="largest JSON body of any other request, in bytes")
    max_upload_bytes: int = Field(4096 * MIB, description="largest dataset upload, in bytes")
    max_dataset_rows: int = Field(50_000_000, description="maximum number of rows of a dataset")
    max_dataset_bytes: int = Field(
        16_384 * MIB, description="maximum bytes of numbers in an unpacked dataset"
    )
    max_concurrent_uploads: int = Field(4, description="uploads that one process reads at the same time")
    max_table_columns: int = Field(
        4_096, ge=1, description="maximum number of columns of an uploaded CSV or Parquet file"
    )
    max_unpacked_ratio: int = Field(
        100,
        ge=1,
        description="times its own size that an uploaded file may unpack to; any file may unpack to 64 MiB",
    )
    parse_timeout_s: float = Field(
        6.0,
        gt=0,
        description="seconds of processor time that reading an upload may take once it has arrived, plus its size "
        "divided by min_parse_bytes_per_s; a busy machine takes longer",
    )
    min_parse_bytes_per_s: float = Field(
        2.0 * MIB, gt=0, description="slowest reading of a large upload, in bytes of the file per second"
    )
    parse_memory_bytes: int = Field(
        1024 * MIB,
        ge=512 * MIB,
        description="memory of the process that reads one upload, in bytes; such a process is started for each",
    )
    max_batch_pairs: int = Field(1_000_000, description="maximum number of pairs in one request")
    max_dimension: int = Field(
        2**20,
        description="maximum number of features of a vector or dataset; the default is what hashing of texts makes",
    )
    max_dense_bytes: int = Field(
        8192 * MIB, description="maximum bytes of sparse data made dense, for a learner that needs dense data"
    )
    max_subject_samples: int = Field(
        100, ge=1, description="maximum number of samples of one subject in a scoring request"
    )
    max_subject_classes: int = Field(
        64,
        ge=0,
        description="combinations of sample counts and aggregation that one calibration is made for on demand; 0: none,"
        " subjects are then scored but not decided",
    )
    max_queued_jobs: int = Field(1_000, description="number of waiting jobs from which new ones are refused")
    max_concurrent_batches: int = Field(
        8, description="long scoring batches that one process runs or keeps waiting"
    )
    request_timeout_s: float = Field(60.0, description="seconds that a scoring request may take")
    drain_s: float = Field(
        0.0,
        ge=0,
        le=300,
        description="seconds that a stopping service keeps answering while /readyz answers 503, so that a proxy sends "
        "new requests to another replica; a second signal stops it at once",
    )
    min_upload_bytes_per_s: float = Field(
        65_536.0,
        gt=0,
        description="slowest upload, in bytes per second: a body may take request_timeout_s plus its size divided by "
        "this",
    )
    rate_limit: float = Field(
        0.0,
        ge=0,
        description="requests per second that one key may send to this machine, in bursts of up to ten seconds' worth; "
        "0: no limit. A key can have its own limit",
    )
    probe_limit: float = Field(
        1_000.0,
        ge=0,
        description="probes per minute of one gallery by one key, in whichever way they are sent: each query of a "
        "search and each verification is one; 0: no limit",
    )
    verify_limit: float = Field(
        60.0,
        ge=0,
        description="verifications per minute of one subject by one key, since many tries defeat any FPR; each counts "
        "as a probe too; 0: no limit",
    )
    decide_limit: float = Field(
        10_000.0,
        ge=0,
        description="pairs per minute that a key which may only decide may send to /match, since many decisions along "
        "a line find where it flips; 0: no limit",
    )
    max_waiting_searches: int = Field(
        256, description="gallery searches and imports that one process runs or keeps waiting"
    )
    max_search_queries: int = Field(1_000, description="maximum number of queries of one gallery search")
    max_search_results: int = Field(
        100_000, description="maximum number of items that one gallery search returns"
    )
    max_gallery_items: int = Field(
        2_000_000, description="maximum number of items of a gallery, and of one bulk import"
    )
    max_calibration_pairs: int = Field(5_000_000, description="maximum number of scores in one calibration")
    allow_asymptotic: bool = Field(
        False,
        description="whether method=auto may answer by the bootstrap, with an asymptotic guarantee, where the finite-"
        "sample method refuses; a model's policy overrides it",
    )
    max_loaded_models: int = Field(32, description="versions that one process keeps in memory")

    catalogue_ttl_s: float = Field(
        0.2, description="seconds that a worker's view of aliases and keys may be old"
    )
    lease_s: float = Field(
        10.0, description="seconds without a heartbeat after which another worker takes over a job"
    )
    poll_s: float = Field(0.5, description="seconds between two looks of an idle worker for a job")
    max_attempts: int = Field(3, description="attempts at a job before it fails")
    import_key_file: Path | None = Field(
        None,
        description="file of a secret key, 16 bytes or more: exports and backups are signed with it, and only files "
        "that are signed with it are imported and restored",
    )
    require_signed_imports: bool = Field(
        False, description="refuse every import and restore while no import_key_file is set"
    )
    job_memory_bytes: int | None = Field(
        None,
        ge=64 * MIB,
        description="memory that one job may use, in bytes; default: 90 % of the memory of the machine or container",
    )
    job_threads: int | None = Field(
        None,
        ge=1,
        le=1_024,
        description="threads of one job, for BLAS and for parallel fits; default: one for each core that the process "
        "may use",
    )
    link_memory_bytes: int = Field(
        1024 * MIB,
        ge=128 * MIB,
        description="memory of the tables that a link job holds, in bytes; what does not fit goes to disk",
    )
    job_timeout_s: float | None = Field(
        None, gt=0, description="seconds that one attempt at a job may run; default: no limit"
    )

    @property
    def resolved_database_url(self) -> str:
        return self.database_url or f"sqlite:///{(self.home / 'pairmark.db').absolute()}"

    @property
    def resolved_artefacts(self) -> str:
        """Folder or ``s3://`` address of blobs."""
        return self.artefacts or str((self.home / "artefacts").absolute())
