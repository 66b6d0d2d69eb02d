# gpupc in a container, with its kernels compiled for the GPUs of ARCHITECTURES:
#   docker build -t gpupc .
#   docker run --rm --gpus all -v "$PWD:/data" gpupc skeleton data.csv
#   docker run --rm -v "$PWD:/data" gpupc skeleton data.csv --backend host    # the same kernels on cores
FROM nvidia/cuda:12.8.1-runtime-ubuntu24.04@sha256:ebef3c171eeef0298e4eb2e4be843105edf3b8b0ac45e0b43acee358e8046867

# g++ compiles kernels for cores.
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /src
COPY pyproject.toml setup.py gpupc.py constraints.txt README.md LICENSE ./
COPY gpupc_impl gpupc_impl
COPY baselines baselines
RUN python3 -m venv /opt/gpupc \
    && /opt/gpupc/bin/pip install --no-cache-dir --constraint constraints.txt '.[cuda12,user]' \
    && install -d -o ubuntu -m 700 /var/cache/gpupc
ENV PATH=/opt/gpupc/bin:$PATH GPUPC_CACHE_DIR=/var/cache/gpupc

# The cache belongs to the user that searches; others' files are not loaded.
USER ubuntu
ARG ARCHITECTURES="sm_80 sm_90"
RUN for architecture in $ARCHITECTURES; do gpupc compile --arch "$architecture" || exit 1; done

WORKDIR /data
ENTRYPOINT ["gpupc"]
CMD ["--help"]
