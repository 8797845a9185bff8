// What a server does around each call that gRPC's packages do not: it counts open calls, limits and counts what arrives and leaves, refuses what it does not
// serve, and spares used connections. A middleware before all others. A gRPC request goes from here directly to the endpoint of its method. Runs on the
// request's thread. An exception becomes the status of the call.
using System.Collections.Frozen;
using Grpc.AspNetCore.Server;
using Grpc.Core;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Http.Features;
using Microsoft.AspNetCore.Routing;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Options;

namespace KvCluster.ServiceDefaults.Calls;

/// <summary>Serves the gRPC requests of a server by the rules that its host has added to its services. Without a rule gRPC's own behaviour applies.</summary>
internal sealed class CallPolicy
{
    /// <summary>HTTP/2's ENHANCE_YOUR_CALM, which gRPC maps to RESOURCE_EXHAUSTED.</summary>
    public const int TooSlowCode = 0xb;

    /// <summary>HTTP/2's INTERNAL_ERROR: the response ends in the middle of a message.</summary>
    private const int PartialResponseCode = 2;

    private readonly OpenCallLimit? _open;
    private readonly MessageMemory? _memory;
    private readonly RequestSizes? _sizes;
    private readonly UnservedCall? _unserved;
    private readonly ForeignCalls? _foreign;
    private readonly RootServices _services;
    private readonly Lazy<FrozenDictionary<string, ServedMethod>> _methods;

    public CallPolicy(IServiceProvider services, IOptions<GrpcServiceOptions> options)
    {
        _open = services.GetService<OpenCallLimit>();
        _memory = services.GetService<MessageMemory>();
        _sizes = services.GetService<RequestSizes>();
        _unserved = services.GetService<UnservedCall>();
        _foreign = services.GetService<ForeignCalls>();
        _services = new RootServices(services);
        // All methods are mapped when the first request comes.
        _methods = new Lazy<FrozenDictionary<string, ServedMethod>>(() => MethodsOf(services.GetRequiredService<EndpointDataSource>(), options.Value));
    }

    /// <summary>Serves a request if it is a call, and otherwise passes it on.</summary>
    public Task ServeAsync(HttpContext context, RequestDelegate rest)
    {
        var request = context.Request;
        var isCall = HttpMethods.IsPost(request.Method) && HttpProtocol.IsHttp2(request.Protocol) && IsGrpc(request.ContentType);
        return isCall ? ServeCallAsync(context) : rest(context);
    }

    private static bool IsGrpc(string? contentType)
    {
        const string grpc = "application/grpc";
        return contentType is not null
            && contentType.StartsWith(grpc, StringComparison.OrdinalIgnoreCase)
            && (contentType.Length == grpc.Length || contentType[grpc.Length] is '+' or ';');
    }

    private async Task ServeCallAsync(HttpContext context)
    {
        var connection = context.Features.Get<IConnectionUseFeature>();
        connection?.MarkUsed();
        ConnectionCalls? counted = null;
        if (_open is not null)
        {
            // A connection that is not tracked has no share of its own, so only the total number of places limits it.
            counted = connection?.Calls ?? new ConnectionCalls();
            if (!_open.TryTake(counted))
            {
                Refuse(_open, counted, connection, context);
                return;
            }
        }
        try
        {
            if (await FindAsync(context).ConfigureAwait(false) is { } method)
                await RunAsync(context, method).ConfigureAwait(false);
        }
        catch (RpcException refusal)
        {
            CallEnding.Write(context, refusal);
        }
        catch (OperationCanceledException) when (context.RequestAborted.IsCancellationRequested)
        {
            // Nobody waits for an answer.
        }
        finally
        {
            if (counted is not null)
                _open!.Return(counted);
        }
    }

    private static void Refuse(OpenCallLimit open, ConnectionCalls counted, IConnectionUseFeature? connection, HttpContext context)
    {
        switch (open.Refuse(counted, context.Features.GetRequiredFeature<IHttpResponseFeature>()))
        {
            case ConnectionFate.TakesNoMore:
                connection?.TakeNoMore();
                break;
            case ConnectionFate.Ends:
                connection?.End();
                break;
        }
    }

    // Null: the call was refused.
    private async ValueTask<ServedMethod?> FindAsync(HttpContext context)
    {
        var (path, headers) = (context.Request.Path.Value ?? "", context.Request.Headers);
        if (!_methods.Value.TryGetValue(path, out var method))
        {
            CallEnding.Write(context, _unserved?.ToException(path) ?? new RpcException(new Status(StatusCode.Unimplemented, $"{path} is not served here.")));
            return null;
        }
        if (headers.GrpcEncoding is { Count: > 0 } encoding && !Decompression.IsKnown(encoding.ToString()))
        {
            context.Response.Headers.GrpcAcceptEncoding = Decompression.Accepted;
            var text = $"The encoding '{encoding}' is not supported; {Decompression.Accepted} are.";
            CallEnding.Write(context, new RpcException(new Status(StatusCode.Unimplemented, text)));
            return null;
        }
        if (_foreign?.OtherOf(headers.TryGetValue(ClusterHeader.Name, out var named) ? named.ToString() : null) is { } other)
            await _foreign.CheckAsync(other, DeadlineOf(headers), context.RequestAborted).ConfigureAwait(false);
        return method;
    }

    private async Task RunAsync(HttpContext context, ServedMethod method)
    {
        var features = context.Features;
        var reset = features.Get<IHttpResetFeature>();
        var request = new RequestBody(context, method, _memory?.Arriving, _sizes);
        var response = new ResponseBody(features.GetRequiredFeature<IHttpResponseBodyFeature>(), method.HasResponseStream ? null : _memory?.Leaving, reset);
        features.Set<IRequestBodyPipeFeature>(request);
        features.Set<IHttpResponseBodyFeature>(response);
        // No service of ours needs a scope of its own for each request.
        features.Set<IServiceProvidersFeature>(_services);
        context.SetEndpoint(method.Endpoint);
        try
        {
            await method.Endpoint.RequestDelegate!(context).ConfigureAwait(false);
            var status = features.Get<IServerCallContextFeature>()?.ServerCallContext.Status ?? Status.DefaultSuccess;
            // A caller that does not read would not read the status of a failed stream either, and the call would never end.
            if (!await response.LeavesAsync(isPatient: status.StatusCode == StatusCode.OK || !method.HasResponseStream).ConfigureAwait(false))
                reset?.Reset(TooSlowCode);
            await response.DrainAsync().ConfigureAwait(false);
            if (response.LeftPartialMessage)
                reset?.Reset(PartialResponseCode);
        }
        finally
        {
            if (request.WasGoneUnbegun)
                _open?.NoteGone();
            request.End();
            response.End();
        }
    }

    private static DateTime DeadlineOf(IHeaderDictionary headers) =>
        headers.GrpcTimeout is { Count: 1 } timeout && GrpcTimeout.TryParse(timeout[0], out var left) ? DateTime.UtcNow + left : DateTime.MaxValue;

    private FrozenDictionary<string, ServedMethod> MethodsOf(EndpointDataSource endpoints, GrpcServiceOptions options) => endpoints.Endpoints
        .Where(static endpoint => endpoint.RequestDelegate is not null)
        .Select(static endpoint => (Endpoint: endpoint, Method: endpoint.Metadata.GetMetadata<GrpcMethodMetadata>()?.Method))
        .Where(static one => one.Method is not null)
        .ToFrozenDictionary(
            static one => one.Method!.FullName,
            one => new ServedMethod(one.Endpoint, one.Method!.Type, BytesMaxOf(one.Method.FullName, options)),
            StringComparer.Ordinal);

    private int BytesMaxOf(string method, GrpcServiceOptions options) =>
        Math.Min(options.MaxReceiveMessageSize ?? int.MaxValue, _sizes?.BytesMaxOf(method) ?? int.MaxValue);

    // Shared by all requests.
    private sealed class RootServices(IServiceProvider services) : IServiceProvidersFeature
    {
        public IServiceProvider RequestServices
        {
            get => services;
            set => throw new NotSupportedException();
        }
    }
}

/// <summary>A method of a server.</summary>
/// <param name="Endpoint">What serves it.</param>
/// <param name="Type">What of it is a stream.</param>
/// <param name="RequestBytesMax">The largest request message, measured uncompressed.</param>
internal sealed record ServedMethod(Endpoint Endpoint, MethodType Type, int RequestBytesMax)
{
    /// <summary>Whether its requests are a stream.</summary>
    public bool HasRequestStream { get; } = Type is MethodType.ClientStreaming or MethodType.DuplexStreaming;

    /// <summary>Whether its responses are a stream.</summary>
    public bool HasResponseStream { get; } = Type is MethodType.ServerStreaming or MethodType.DuplexStreaming;
}
