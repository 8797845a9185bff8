# The image of the command `kv`: `docker build -f deploy/cli.Dockerfile -t kvcluster/cli .` at the root of the sources, with BuildKit.
# Build arguments and secret are those of node.Dockerfile. A container runs one command and ends, so there is no health check.
ARG SDK_IMAGE=mcr.microsoft.com/dotnet/sdk:10.0
ARG RUNTIME_IMAGE=mcr.microsoft.com/dotnet/runtime-deps:10.0-noble-chiseled

FROM --platform=$BUILDPLATFORM ${SDK_IMAGE} AS build
ARG TARGETARCH
WORKDIR /source
COPY . .
# Builds all three programs. This step is identical in the three Dockerfiles, so the second and third image reuse it from the cache.
RUN --mount=type=cache,target=/root/.nuget/packages,sharing=locked \
    --mount=type=secret,id=nuget-config,target=/root/.nuget/NuGet/NuGet.Config \
    for program in node/Server router client/Cli; do \
      dotnet publish $program -c Release -a "$TARGETARCH" --self-contained -p:PublishReadyToRun=true -p:DebugType=none -p:PublishDocumentationFiles=false -o /publish/$program -v quiet || exit 1; \
    done && mkdir /empty

FROM ${RUNTIME_IMAGE}
COPY --from=build /publish/client/Cli /app
ENV DOTNET_EnableDiagnostics=0 \
    DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1
USER 1654:1654
ENTRYPOINT ["/app/kv"]
CMD ["--help"]
