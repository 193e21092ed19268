# One image for the daemon and for executors. Everything that is downloaded as a Python package is pinned by hash in the
# requirements files; the base is pinned by whoever builds: --build-arg BASE=debian:bookworm-slim@sha256:...
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS build
SHELL ["/bin/sh", "-eu", "-c"]
RUN apt-get update \
 && apt-get install --yes --no-install-recommends gcc libc6-dev python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY requirements-build.lock requirements-runtime.lock ./
RUN python3 -m venv /opt/tidegate \
 && /opt/tidegate/bin/pip install --no-cache-dir --require-hashes -r requirements-build.lock \
 && /opt/tidegate/bin/pip install --no-cache-dir --require-hashes --no-build-isolation -r requirements-runtime.lock
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY docs docs
COPY examples/cookbook examples/cookbook
COPY tidegate tidegate
RUN TIDEGATE_BUILD_NATIVE=1 /opt/tidegate/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
 && /opt/tidegate/bin/pip uninstall --yes pip setuptools \
 && find /opt/tidegate -name '*.pyc' -delete

FROM ${BASE}
SHELL ["/bin/sh", "-eu", "-c"]
# tini collects processes that a slot's end leaves to process 1; procps is for Spark's scripts. The package of Java links
# a page of the manual and fails where a slim base has no directory for it.
RUN mkdir -p /usr/share/man/man1 \
 && apt-get update \
 && apt-get install --yes --no-install-recommends python3 openjdk-17-jre-headless tini procps ca-certificates \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --system --gid 185 tidegate \
 && useradd --system --uid 185 --gid 185 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin tidegate
COPY --from=build /opt/tidegate /opt/tidegate
COPY --chmod=0755 packaging/image/entrypoint.sh /opt/tidegate/entrypoint.sh
ENV PATH=/opt/tidegate/bin:/usr/local/bin:/usr/bin:/bin \
    SPARK_HOME=/opt/tidegate/lib/python3.11/site-packages/pyspark \
    TIDEGATE_CACHE=/opt/tidegate/cache \
    PYTHONUNBUFFERED=1
# Compiled modules and class archives are made here, because a running container cannot write them. `schemas` is where
# the chart mounts a volume for copies of the registry's schemas.
RUN python3 -m compileall -q -j 0 /opt/tidegate/lib \
 && HOME=/tmp tidegate prepare \
 && mkdir -p /opt/tidegate/cache/schemas /etc/tidegate /var/lib/tidegate \
 && chmod -R a+rX /opt/tidegate \
 && rm -rf /tmp/*
USER 185:185
WORKDIR /tmp
ENTRYPOINT ["tini", "--", "/opt/tidegate/entrypoint.sh"]
CMD ["--help"]
