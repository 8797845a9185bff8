// Receives requests from Kestrel, on a thread of the pool. Kestrel turns an exception thrown here into a reset, so calls convert their exceptions to a status
// first.
using Grpc.AspNetCore.Server.Calls;
using Microsoft.AspNetCore.Hosting.Server;
using Microsoft.AspNetCore.Hosting.Server.Abstractions;
using Microsoft.AspNetCore.Http.Features;

namespace Grpc.AspNetCore.Server.Hosting;

/// <summary>Separates gRPC calls from other requests before anything is built for a request.</summary>
internal sealed class GrpcApplication<TInner>(IHttpApplication<TInner> inner, CallDispatcher dispatcher)
    : IHttpApplication<RequestContext<TInner>>
    where TInner : notnull
{
    public RequestContext<TInner> CreateContext(IFeatureCollection contextFeatures)
    {
        // Kestrel keeps the context with its pooled HTTP/2 stream, and the context keeps its call.
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
        else if (dispatcher.OpenCalls is { } open && !TryTakePlace(open, context, contextFeatures))
            context.IsRefused = true;
        else
            (context.Call ??= dispatcher.CreateCall()).Begin(contextFeatures, request, context.Method.RequestBytesMax);
        return context;
    }

    public Task ProcessRequestAsync(RequestContext<TInner> context) =>
        context.IsRefused ? Task.CompletedTask
        : context.Method is { } method ? method.RunAsync(context.Call!)
        : inner.ProcessRequestAsync(context.Inner!);

    public void DisposeContext(RequestContext<TInner> context, Exception? exception)
    {
        if (context.Method is null)
            inner.DisposeContext(context.Inner!, exception);
        else if (!context.IsRefused)
            EndCall(context.Call!);
        if (context.HasPlace)
            dispatcher.OpenCalls!.Return(context.OfConnection!);
        context.HasPlace = false;
        context.IsRefused = false;
        context.Inner = default;
        context.Method = null;
    }

    private void EndCall(ServerCall call)
    {
        if (call.WasGoneUnbegun)
            dispatcher.OpenCalls?.NoteGone();
        call.End();
    }

    // Called before anything is allocated for the call, so that a refusal costs little. A connection that is not tracked has no share of its own, so only the
    // total number of places limits it.
    private static bool TryTakePlace(OpenCalls open, RequestContext<TInner> context, IFeatureCollection features)
    {
        context.OfConnection ??= features.Get<IConnectionUseFeature>()?.Calls ?? new ConnectionCalls();
        context.HasPlace = open.TryTake(context.OfConnection);
        if (context.HasPlace)
            return true;
        switch (open.Refuse(context.OfConnection, features.GetRequiredFeature<IHttpResponseFeature>()))
        {
            case ConnectionFate.TakesNoMore:
                features.Get<IConnectionUseFeature>()?.TakeNoMore();
                break;
            case ConnectionFate.Ends:
                features.Get<IConnectionUseFeature>()?.End();
                break;
        }
        return false;
    }
}
