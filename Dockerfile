# One Varve node. `docker run -p 9092:9092 IMAGE` is a cluster of one that clients of this machine reach at
# localhost:9092. `docker compose up` starts three (docker-compose.yml).
FROM python:3.11-slim-bookworm AS build
# For the parts in C (scripts/build_native.py).
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY scripts/build_native.py scripts/
COPY protocol protocol
COPY raft raft
COPY storage storage
COPY broker broker
COPY pipeline pipeline
COPY varve varve
RUN python -m venv /opt/varve && /opt/varve/bin/pip install --no-cache-dir .

FROM python:3.11-slim-bookworm
RUN useradd --system --uid 10001 --home-dir /var/lib/varve --create-home varve \
    && mkdir /var/lib/varve/data /var/lib/varve/secret && chmod 700 /var/lib/varve/secret \
    && chown varve:varve /var/lib/varve/data /var/lib/varve/secret
COPY --from=build /opt/varve /opt/varve
ENV PATH=/opt/varve/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    KAFKA_LOG_DIRS=/var/lib/varve/data \
    KAFKA_LISTENERS=PLAINTEXT://0.0.0.0:9092,CONTROLLER://localhost:9093
# Docker forwards a published port to the container's own address, so clients are listened to on every address. They are
# told localhost:9092 (KAFKA_ADVERTISED_LISTENERS changes it). Other nodes are not expected, so that no secret is needed.
USER varve
VOLUME /var/lib/varve/data
EXPOSE 9092 9093 9094
# What the command says of this node decides: it serves clients and sees a majority.
HEALTHCHECK --interval=2s --timeout=5s --start-period=5s --retries=10 \
    CMD ["varve", "health", "--bootstrap-server", "localhost:9092"]
CMD ["varve", "start"]
