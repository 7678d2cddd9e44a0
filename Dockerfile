# One image for the API, the worker and the set-up; what a container does is its command.
FROM python:3.11-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PATH=/opt/pairmark/bin:$PATH
WORKDIR /src
COPY requirements/runtime.txt requirements/
RUN python -m venv /opt/pairmark && pip install --quiet --require-hashes -r requirements/runtime.txt
COPY pyproject.toml setup.py README.md LICENSE ./
COPY pairmark pairmark
# The commit that lineage records: docker build --build-arg PAIRMARK_COMMIT=$(git rev-parse HEAD)
ARG PAIRMARK_COMMIT=
# Numba's cache knows a source by its modification time, of which image layers keep whole seconds only. The time differs
# from image to image, so that a cache volume of an earlier one is not taken for this one's.
RUN pip install --quiet --no-compile --no-deps --no-build-isolation . \
 && find /opt/pairmark/lib/python3*/site-packages/pairmark -name '*.py' -exec touch -d "@$(date +%s)" {} + \
 && python -m compileall -q /opt/pairmark/lib/python3*/site-packages/pairmark

FROM python:3.11-slim-bookworm
LABEL org.opencontainers.image.title="Pairmark" org.opencontainers.image.licenses="Apache-2.0"
# `pairmark backup` and `restore` call pg_dump and pg_restore.
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends postgresql-client \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --system --gid 10001 pairmark \
 && useradd --system --uid 10001 --gid pairmark --home-dir /var/lib/pairmark --shell /usr/sbin/nologin pairmark \
 && install -d -o pairmark -g pairmark -m 0700 /var/lib/pairmark /run/pairmark /run/cluster /var/cache/pairmark
COPY --from=build /opt/pairmark /opt/pairmark
ENV PATH=/opt/pairmark/bin:$PATH PYTHONUNBUFFERED=1 PAIRMARK_HOME=/var/lib/pairmark \
    NUMBA_CACHE_DIR=/var/cache/pairmark/numba MPLCONFIGDIR=/var/cache/pairmark/matplotlib
USER pairmark
WORKDIR /var/lib/pairmark
# Compiled for the CPU that builds; a container on another CPU compiles its own before it calls itself ready.
RUN pairmark warmup
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
ENTRYPOINT ["pairmark"]
CMD ["serve"]
