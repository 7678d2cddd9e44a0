# One image for the API, the worker and the set-up; what a container does is its command.
FROM python:3.11-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends binutils >/dev/null
COPY requirements/runtime.txt requirements/
# What nothing uses at run time goes: tests and sources of packages, AWS services but S3 and its logins, and symbols of debuggers
# (not of libraries that their wheels patched: stripped, these do not load).
RUN python -m venv /opt/pairmark \
 && /opt/pairmark/bin/pip install --quiet --no-compile --require-hashes -r requirements/runtime.txt \
 && cd /opt/pairmark/lib/python3*/site-packages \
 && find . -type d \( -name tests -o -name test \) -prune -exec rm -rf {} + \
 && find . -type f \( -name '*.[ch]' -o -name '*.cpp' -o -name '*.pyx' -o -name '*.pxd' \) -delete \
 && strip --strip-unneeded llvmlite/binding/*.so uvloop/*.so kiwisolver/*.so fontTools/*/*.so \
 && find botocore/data -mindepth 1 -maxdepth 1 -type d \
      ! -name s3 ! -name sts ! -name 'sso*' ! -name signin -exec rm -rf {} +
COPY pyproject.toml setup.py README.md LICENSE ./
COPY pairmark pairmark
# The commit that lineage records: docker build --build-arg PAIRMARK_COMMIT=$(git rev-parse HEAD)
ARG PAIRMARK_COMMIT=
# Numba's cache knows a source by its modification time, and image layers keep whole seconds only.
RUN /opt/pairmark/bin/pip install --quiet --no-compile --no-deps --no-build-isolation . \
 && cd /opt/pairmark/lib/python3*/site-packages \
 && rm -rf pip pip-* setuptools setuptools-* pkg_resources _distutils_hack distutils-precedence.pth \
 && find . -name '*.py' -newermt @0 -exec touch -d @1700000000 {} + \
 && /opt/pairmark/bin/python -m compileall -q -j 0 "$PWD"

FROM python:3.11-slim-bookworm
LABEL org.opencontainers.image.title="Pairmark" org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --system --gid 10001 pairmark \
 && useradd --system --uid 10001 --gid pairmark --home-dir /var/lib/pairmark --shell /usr/sbin/nologin pairmark \
 && install -d -o pairmark -g pairmark -m 0700 /var/lib/pairmark /run/pairmark /var/cache/pairmark
COPY --from=build /opt/pairmark /opt/pairmark
ENV PATH=/opt/pairmark/bin:$PATH PYTHONUNBUFFERED=1 PAIRMARK_HOME=/var/lib/pairmark \
    NUMBA_CACHE_DIR=/var/cache/pairmark/numba MPLCONFIGDIR=/var/cache/pairmark/matplotlib
USER pairmark
WORKDIR /var/lib/pairmark
# Compiled for the CPU that builds; a container on another CPU compiles its own before it calls itself ready.
RUN pairmark warmup
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python", "-m", "pairmark.service.healthcheck"]
ENTRYPOINT ["pairmark"]
CMD ["serve"]
