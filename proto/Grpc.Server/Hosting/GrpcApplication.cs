// Where Kestrel hands over requests, on a thread of the pool. What throws here is turned into a reset by Kestrel, so calls turn
// their exceptions into a status before.
using Microsoft.AspNetCore.Hosting.Server;
using Microsoft.AspNetCore.Hosting.Server.Abstractions;
using Microsoft.AspNetCore.Http.Features;

namespace Grpc.AspNetCore.Server.Hosting;

/// <summary>Tells gRPC calls from other requests before anything is built for a request.</summary>
internal sealed class GrpcApplication<TInner>(IHttpApplication<TInner> inner, CallDispatcher dispatcher)
    : IHttpApplication<RequestContext<TInner>>
    where TInner : notnull
{
    public RequestContext<TInner> CreateContext(IFeatureCollection contextFeatures)
    {
        // Kestrel keeps the context with its pooled HTTP/2 stream, and so does the call in it.
        var container = contextFeatures as IHostContextContainer<RequestContext<TInner>>;
        if (container?.HostContext is not { } context)
        {
            context = new RequestContext<TInner>();
            if (container is not null)
                container.HostContext = context;
        }
        var request = contextFeatures.GetRequiredFeature<IHttpRequestFeature>();
        context.Method = dispatcher.Find(request);
        if (context.Method is null)
            context.Inner = inner.CreateContext(contextFeatures);
        else
            (context.Call ??= dispatcher.CreateCall()).Begin(contextFeatures, request);
        return context;
    }

    public Task ProcessRequestAsync(RequestContext<TInner> context) =>
        context.Method is { } method ? method.RunAsync(context.Call!) : inner.ProcessRequestAsync(context.Inner!);

    public void DisposeContext(RequestContext<TInner> context, Exception? exception)
    {
        if (context.Method is null)
            inner.DisposeContext(context.Inner!, exception);
        else
            context.Call!.End();
        context.Inner = default;
        context.Method = null;
    }
}
