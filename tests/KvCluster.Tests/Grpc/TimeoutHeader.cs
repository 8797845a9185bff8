using Grpc.Net.Client;

namespace KvCluster.Tests.Grpc;

/// <summary>
/// Sends the metadata <see cref="Metadata"/> as the header of a deadline. So only the header carries it, as with a client that does not enforce its own
/// deadline. The client does not send that header from metadata.
/// </summary>
internal sealed class TimeoutHeader() : DelegatingHandler(new SocketsHttpHandler())
{
    public const string Metadata = "x-timeout";

    /// <summary>Options of a channel with such a handler.</summary>
    public static GrpcChannelOptions Options() => new() { HttpHandler = new TimeoutHeader(), DisposeHttpClient = true };

    protected override Task<HttpResponseMessage> SendAsync(HttpRequestMessage request, CancellationToken cancellationToken)
    {
        if (request.Headers.NonValidated.TryGetValues(Metadata, out var timeout))
            request.Headers.TryAddWithoutValidation("grpc-timeout", timeout.ToString());
        return base.SendAsync(request, cancellationToken);
    }
}
