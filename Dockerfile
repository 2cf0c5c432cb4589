# zscope with all its extras but `cluster`, at the locked versions.
#
#   docker build -t zscope .
#   docker run --rm -v "$PWD:/work" --user "$(id -u):$(id -g)" zscope report runs/mine -o report.html
#
# The folder that you mount at /work is where zscope reads and writes. The live page listens to the
# machine it runs on alone, which in a container is the container. On Linux, share the network:
#
#   docker run --rm -v "$PWD:/work" --network host zscope explore runs/mine --no-browser
#
# Elsewhere publish a port, to this machine alone, and open http://127.0.0.1:8000/?token=... with the
# token that it prints:
#
#   docker run --rm -v "$PWD:/work" -p 127.0.0.1:8000:8000 zscope explore runs/mine \
#       --no-browser --host 0.0.0.0 --port 8000
FROM python:3.11-slim

# LightGBM needs it. Debian keeps one version of a release.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/*

# First and alone, since it is the largest and changes least. Another build of it, say without CUDA:
# --build-arg TORCH="torch==2.13.0 --index-url ADDRESS", as one would tell pip.
ARG TORCH="torch==2.13.0"
# hadolint ignore=DL3013
RUN pip install --no-cache-dir ${TORCH}

WORKDIR /opt/zscope
COPY requirements.lock ./
RUN pip install --no-cache-dir --no-deps --only-binary :all: --require-hashes -r requirements.lock
COPY LICENSE README.md pyproject.toml setup.py ./
COPY src src
RUN pip install --no-cache-dir --no-deps --no-build-isolation . && pip check

# Nobody's files are written as root. Whoever it runs as, caches have a place that can be written.
RUN useradd --create-home --uid 1000 zscope && mkdir -m 1777 /work /cache
ENV HF_HOME=/cache/huggingface MPLCONFIGDIR=/cache/matplotlib ZSCOPE_DATA=/cache/zscope
USER 1000
WORKDIR /work
ENTRYPOINT ["zscope"]
CMD ["--help"]
