using Grpc.Core;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Http.Features;

namespace KvCluster.ServiceDefaults.Calls;

/// <summary>Ends calls of a server with a status that gRPC's packages did not decide, or decided otherwise.</summary>
internal static class CallEnding
{
    /// <summary>
    /// Ends a call with this status: by its headers, or by its trailers if the headers have been sent. Does nothing if those have been sent, too.
    /// </summary>
    public static void Write(HttpContext context, RpcException failure)
    {
        var headers = context.Response.HasStarted ? context.Features.Get<IHttpResponseTrailersFeature>()?.Trailers : context.Response.Headers;
        if (headers is null or { IsReadOnly: true })
            return;
        if (!context.Response.HasStarted)
            headers.ContentType = "application/grpc";
        headers.GrpcStatus = StatusText.Of(failure.StatusCode);
        headers.GrpcMessage = StatusMessage.Encode(failure.Status.Detail);
        foreach (var entry in failure.Trailers)
            headers[entry.Key] = HeaderValue.Of(entry);
    }
}
