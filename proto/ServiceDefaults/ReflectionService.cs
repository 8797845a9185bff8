using Grpc.Core;
using Grpc.Reflection.V1;

namespace KvCluster.ServiceDefaults;

/// <summary>Answers grpc.reflection.v1, so that tools can call a server without its proto files.</summary>
internal sealed class ReflectionService(ReflectionCatalog catalog) : ServerReflection.ServerReflectionBase
{
    /// <inheritdoc/>
    public override async Task ServerReflectionInfo(
        IAsyncStreamReader<ServerReflectionRequest> requestStream,
        IServerStreamWriter<ServerReflectionResponse> responseStream,
        ServerCallContext context)
    {
        await foreach (var request in requestStream.ReadAllAsync(context.CancellationToken).ConfigureAwait(false))
            await responseStream.WriteAsync(catalog.Answer(request)).ConfigureAwait(false);
    }
}
