using Google.Protobuf;
using Grpc.Core;
using Grpc.Reflection.V1Alpha;

namespace KvCluster.ServiceDefaults;

/// <summary>Answers grpc.reflection.v1alpha. Its messages have the same encoding as those of v1, so they are converted through their bytes.</summary>
internal sealed class ReflectionAlphaService(ReflectionCatalog catalog) : ServerReflection.ServerReflectionBase
{
    /// <inheritdoc/>
    public override async Task ServerReflectionInfo(
        IAsyncStreamReader<ServerReflectionRequest> requestStream,
        IServerStreamWriter<ServerReflectionResponse> responseStream,
        ServerCallContext context)
    {
        await foreach (var request in requestStream.ReadAllAsync(context.CancellationToken).ConfigureAwait(false))
        {
            var response = catalog.Answer(Grpc.Reflection.V1.ServerReflectionRequest.Parser.ParseFrom(request.ToByteString()));
            await responseStream.WriteAsync(ServerReflectionResponse.Parser.ParseFrom(response.ToByteString())).ConfigureAwait(false);
        }
    }
}
