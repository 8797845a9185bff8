using System.Net;
using Grpc.Core;
using Grpc.Shared;

namespace Grpc.Net.Client.Calls;

/// <summary>The headers of a request.</summary>
internal static class RequestMessage
{
    /// <summary>The header with the time that the caller will wait.</summary>
    public const string Timeout = "grpc-timeout";

    private const int CommonHeaders = 3;

    private static readonly string UserAgent = $"grpc-dotnet-kvcluster/{typeof(RequestMessage).Assembly.GetName().Version!.ToString(3)}";

    /// <summary>Creates a request with the headers common to all calls.</summary>
    public static HttpRequestMessage Create(HttpContent content)
    {
        var request = new HttpRequestMessage
        {
            Method = HttpMethod.Post,
            Version = HttpVersion.Version20,
            VersionPolicy = HttpVersionPolicy.RequestVersionExact,
            Content = content,
        };
        request.Headers.TryAddWithoutValidation("TE", "trailers");
        request.Headers.TryAddWithoutValidation("User-Agent", UserAgent);
        request.Headers.TryAddWithoutValidation("grpc-accept-encoding", Decompression.Accepted);
        return request;
    }

    /// <summary>Adds the headers of one call.</summary>
    public static void AddHeaders(HttpRequestMessage request, CallOptions options)
    {
        if (options.Deadline is { } deadline && deadline != DateTime.MaxValue)
            request.Headers.TryAddWithoutValidation(Timeout, GrpcTimeout.Format(deadline.ToUniversalTime() - DateTime.UtcNow));
        if (options.Headers is null)
            return;
        foreach (var entry in options.Headers)
            request.Headers.TryAddWithoutValidation(entry.Key, HeaderValue.Of(entry));
    }

    /// <summary>Whether nothing was added to the headers that <see cref="Create"/> set.</summary>
    public static bool HasOnlyCommonHeaders(HttpRequestMessage request) => request.Headers.NonValidated.Count == CommonHeaders;
}
