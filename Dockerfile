# The agent as a container image, from Debian's packages and the wheels that requirements.lock names by hash.
#
# BASE names a tag, which moves. Pin what you build from by the digest that your registry shows for it:
#   docker build --build-arg BASE=docker.io/library/debian:bookworm-slim@sha256:... .
# The same BASE, lock file and SOURCE_DATE_EPOCH give the same Python files.
ARG BASE=docker.io/library/debian:bookworm-slim

FROM ${BASE} AS build
ARG DEBIAN_FRONTEND=noninteractive
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-venv ca-certificates \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/* /var/log/*
WORKDIR /src
COPY requirements.lock requirements-build.lock ./
# The packaging tools stay in a folder of their own, which the image does not get.
ENV PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1 PIP_NO_DEPS=1 PIP_ONLY_BINARY=:all: PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv --without-pip /opt/clusterwatt \
 && python3 -m venv /tmp/tools \
 && /tmp/tools/bin/pip install --require-hashes -r requirements-build.lock \
 && /tmp/tools/bin/pip --python /opt/clusterwatt/bin/python install --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY agent agent
RUN PIP_ONLY_BINARY= /tmp/tools/bin/pip wheel --no-build-isolation --wheel-dir /tmp/wheels . \
 && /tmp/tools/bin/pip --python /opt/clusterwatt/bin/python install /tmp/wheels/clusterwatt-*.whl \
 && /opt/clusterwatt/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/clusterwatt/lib

FROM ${BASE}
ARG DEBIAN_FRONTEND=noninteractive
ARG REVISION=""
LABEL org.opencontainers.image.title="clusterwatt" \
      org.opencontainers.image.description="Watches a GPU training node: utilisation, energy and cost as Prometheus metrics" \
      org.opencontainers.image.source="https://github.com/clusterwatt/clusterwatt" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${REVISION}"
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 ca-certificates \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/* /var/log/* \
 && groupadd --gid 10777 clusterwatt \
 && useradd --no-log-init --no-create-home --uid 10777 --gid 10777 --home-dir /var/lib/clusterwatt \
    --shell /usr/sbin/nologin clusterwatt \
 && install -d -o 10777 -g 10777 /var/lib/clusterwatt /run/clusterwatt
COPY --from=build /opt/clusterwatt /opt/clusterwatt
# NVIDIA's container runtime looks at these; elsewhere they mean nothing. Utility is NVML, and no compute.
ENV PATH="/opt/clusterwatt/bin:${PATH}" \
    PYTHONDONTWRITEBYTECODE=1 \
    XDG_STATE_HOME=/var/lib \
    XDG_RUNTIME_DIR=/run \
    CLUSTERWATT_REVISION="${REVISION}" \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=utility
# Root, with what that adds, is for who starts the container to say (docs/KUBERNETES.md).
USER 10777:10777
WORKDIR /
EXPOSE 10777
STOPSIGNAL SIGTERM
# From memory: neither the driver nor a disk is asked. With TLS, and on another port, the orchestrator asks.
# No proxy: HTTP_PROXY, where it is set, is not for this machine.
HEALTHCHECK --interval=15s --timeout=5s --start-period=20s --retries=4 \
  CMD ["python", "-c", \
       "from urllib import request as r; r.build_opener(r.ProxyHandler({})).open('http://127.0.0.1:10777/healthz', timeout=4)"]
ENTRYPOINT ["clusterwatt"]
CMD ["run", "--listen", ":10777"]
