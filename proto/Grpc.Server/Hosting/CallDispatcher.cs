// The methods of a server by path. Filled while the host is built, on one thread; frozen when the server starts, and read by all requests from then on.
using System.Collections.Frozen;
using Grpc.AspNetCore.Server.Binding;
using Grpc.AspNetCore.Server.Calls;
using Grpc.Core;
using Grpc.Core.Interceptors;
using Microsoft.AspNetCore.Http.Features;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Options;

namespace Grpc.AspNetCore.Server.Hosting;

/// <summary>Finds the handler of a request.</summary>
internal sealed class CallDispatcher : ServiceBinderBase
{
    private readonly Dictionary<string, MethodHandler> _methods = new(StringComparer.Ordinal);
    private readonly CallSettings _settings;
    private readonly Interceptor[] _interceptors;
    private readonly UnknownMethodHandler _unknown;
    private FrozenDictionary<string, MethodHandler> _frozen = FrozenDictionary<string, MethodHandler>.Empty;
    private bool _isFrozen;

    public CallDispatcher(IOptions<GrpcServiceOptions> options, IServiceProvider provider, ILogger<CallDispatcher> log)
    {
        OpenCalls = provider.GetService<OpenCalls>();
        _settings = new CallSettings(options.Value, provider.GetService<MessageMemory>(), provider.GetService<UnreadableRequest>(), provider.GetService<RequestSizes>(), log);
        _unknown = new UnknownMethodHandler(provider.GetService<UnservedCall>());
        _interceptors = [.. options.Value.Interceptors.Select(type => (Interceptor)(provider.GetService(type) ?? ActivatorUtilities.CreateInstance(provider, type)))];
    }

    /// <summary>Null if the number of open calls is not limited.</summary>
    public OpenCalls? OpenCalls { get; }

    public ServerCall CreateCall() => new(_settings);

    /// <summary>Accepts no more methods from now on.</summary>
    public void Freeze()
    {
        _frozen = _methods.ToFrozenDictionary(StringComparer.Ordinal);
        _isFrozen = true;
    }

    /// <summary>The handler of a request; null if it is not a gRPC request.</summary>
    public MethodHandler? Find(IHttpRequestFeature request)
    {
        if (!IsGrpc(request.Headers.ContentType))
            return null;
        if (request.Protocol != "HTTP/2" || request.Method != "POST")
            return null;
        return _frozen.TryGetValue(request.Path, out var method) ? method : _unknown;
    }

    public override void AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, UnaryServerMethod<TRequest, TResponse> handler) =>
        Add(new UnaryHandler<TRequest, TResponse>(method, InterceptedMethods.Unary(handler, _interceptors)));

    public override void AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, ClientStreamingServerMethod<TRequest, TResponse> handler) =>
        Add(new ClientStreamingHandler<TRequest, TResponse>(method, InterceptedMethods.ClientStreaming(handler, _interceptors)));

    public override void AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, ServerStreamingServerMethod<TRequest, TResponse> handler) =>
        Add(new ServerStreamingHandler<TRequest, TResponse>(method, InterceptedMethods.ServerStreaming(handler, _interceptors)));

    public override void AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, DuplexStreamingServerMethod<TRequest, TResponse> handler) =>
        Add(new DuplexStreamingHandler<TRequest, TResponse>(method, InterceptedMethods.DuplexStreaming(handler, _interceptors)));

    private static bool IsGrpc(Microsoft.Extensions.Primitives.StringValues contentType)
    {
        const string grpc = "application/grpc";
        return contentType.Count == 1 && contentType[0] is { } text
            && text.StartsWith(grpc, StringComparison.OrdinalIgnoreCase)
            && (text.Length == grpc.Length || text[grpc.Length] is '+' or ';');
    }

    private void Add(MethodHandler handler)
    {
        if (_isFrozen)
            throw new InvalidOperationException($"{handler.FullName} was mapped after the server started.");
        handler.RequestBytesMax = Math.Min(_settings.RequestBytesMax, _settings.Sizes?.BytesMaxOf(handler.FullName) ?? int.MaxValue);
        if (!_methods.TryAdd(handler.FullName, handler))
            throw new InvalidOperationException($"{handler.FullName} is already served.");
    }
}
