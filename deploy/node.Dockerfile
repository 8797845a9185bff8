# The image of a node: `docker build -f deploy/node.Dockerfile -t kvcluster/node .` at the root of the sources, with BuildKit.
# Without access to the default registries, name your base images with --build-arg, and your package feed with --secret id=nuget-config,src=NuGet.Config.
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
RUN printf '%s\n' 'data: /data' 'listen: http://0.0.0.0:7401' 'admin: http://0.0.0.0:7480' 'log-format: json' >/settings.yaml

FROM ${RUNTIME_IMAGE}
COPY --from=build /publish/node/Server /app
COPY --from=build /settings.yaml /app/settings.yaml
# A named volume gets the owner of the directory on which it is mounted.
COPY --from=build --chown=1654:1654 /empty /data
# DOTNET_EnableDiagnostics=0, because the runtime's diagnostic socket would be in /tmp, which a read-only root file system does not allow.
ENV DOTNET_EnableDiagnostics=0 \
    DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1 \
    KVCLUSTER_CONFIG=/app/settings.yaml
USER 1654:1654
VOLUME /data
# gRPC for clients, the admin port, and the streams of other nodes (100 above the first).
EXPOSE 7401 7480 7501
HEALTHCHECK --interval=5s --timeout=4s --start-period=60s --retries=3 CMD ["/app/kv-node", "health"]
ENTRYPOINT ["/app/kv-node"]
CMD ["run"]
