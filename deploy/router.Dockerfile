# The image of a router: `docker build -f deploy/router.Dockerfile -t kvcluster/router .` at the root of the sources, with BuildKit.
# Build arguments and secret are those of node.Dockerfile.
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
# The settings of a container. In a file, because a variable of the image would override the file of whoever runs it.
RUN printf '%s\n' 'listen: http://0.0.0.0:7400' 'admin: http://0.0.0.0:7480' 'log-format: json' >/settings.yaml

FROM ${RUNTIME_IMAGE}
COPY --from=build /publish/router /app
COPY --from=build /settings.yaml /app/settings.yaml
ENV DOTNET_EnableDiagnostics=0 \
    DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1 \
    KVCLUSTER_CONFIG=/app/settings.yaml
USER 1654:1654
EXPOSE 7400 7480
HEALTHCHECK --interval=5s --timeout=4s --start-period=60s --retries=3 CMD ["/app/kv-router", "health"]
ENTRYPOINT ["/app/kv-router"]
CMD ["run"]
