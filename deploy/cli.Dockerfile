# The image of the command `kv`: `docker build -f deploy/cli.Dockerfile -t kvcluster/cli .` at the root of the sources, with BuildKit.
# Arguments and secret as in node.Dockerfile. It runs one command and ends, so it has no health check.
ARG SDK_IMAGE=mcr.microsoft.com/dotnet/sdk:10.0
ARG RUNTIME_IMAGE=mcr.microsoft.com/dotnet/runtime-deps:10.0-noble-chiseled

FROM --platform=$BUILDPLATFORM ${SDK_IMAGE} AS build
ARG TARGETARCH
WORKDIR /source
COPY . .
RUN --mount=type=cache,target=/root/.nuget/packages,sharing=locked \
    --mount=type=secret,id=nuget-config,target=/root/.nuget/NuGet/NuGet.Config \
    dotnet publish client/Cli -c Release -a "$TARGETARCH" --self-contained -p:PublishReadyToRun=true -p:DebugType=none -p:PublishDocumentationFiles=false -o /publish -v quiet

FROM ${RUNTIME_IMAGE}
COPY --from=build /publish /app
ENV DOTNET_EnableDiagnostics=0 \
    DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1
USER 1654:1654
ENTRYPOINT ["/app/kv"]
CMD ["--help"]
