// Answers health checks of any gRPC prober. A singleton of a node or router, mapped by MapGrpcService<GrpcHealth>(). The process says when its readiness may
// have changed, from any thread.
using System.Collections.Concurrent;
using Grpc.Core;
using Grpc.Health.V1;
using Grpc.HealthCheck;
using ServingStatus = Grpc.Health.V1.HealthCheckResponse.Types.ServingStatus;

namespace KvCluster.ServiceDefaults.Hosting;

/// <summary>Answers grpc.health.v1. At first it knows only the server as a whole, with the status NotServing.</summary>
internal sealed class GrpcHealth : HealthServiceImpl
{
    private readonly ConcurrentDictionary<string, bool> _services = new(StringComparer.Ordinal);
    private volatile bool _isStopped;
    private volatile Func<string?>? _notReady;

    public GrpcHealth() => SetStatus("", ServingStatus.NotServing);

    /// <summary>From now on the server as a whole has the status of the process, at each <see cref="Look"/>.</summary>
    /// <param name="notReady">Why it is not ready; null if it is.</param>
    public void Follow(Func<string?> notReady)
    {
        _notReady = notReady;
        Look();
    }

    /// <summary>
    /// Compares the status with that of the process. Called when the process knows of a change, and from time to time for the others. Of two calls at the same
    /// time the older one may be the last, which the next call corrects.
    /// </summary>
    public void Look()
    {
        if (_notReady is { } notReady)
            SetStatus("", notReady() is null ? ServingStatus.Serving : ServingStatus.NotServing);
    }

    /// <summary>Sets the status of a service; the empty name is the server as a whole.</summary>
    public new void SetStatus(string service, ServingStatus status)
    {
        _services[service] = true;
        base.SetStatus(service, _isStopped ? ServingStatus.NotServing : status);
    }

    /// <summary>Sets everything to NotServing for good. Watches report that and end.</summary>
    public void Stop()
    {
        _isStopped = true;
        foreach (var service in _services.Keys)
            base.SetStatus(service, ServingStatus.NotServing);
    }

    /// <inheritdoc/>
    public override async Task<HealthCheckResponse> Check(HealthCheckRequest request, ServerCallContext context)
    {
        try
        {
            return await base.Check(request, context).ConfigureAwait(false);
        }
        catch (RpcException failure) when (failure.StatusCode == StatusCode.NotFound)
        {
            throw new RpcException(new Status(StatusCode.NotFound, "This server has no service of that name."));
        }
    }

    /// <inheritdoc/>
    public override Task Watch(HealthCheckRequest request, IServerStreamWriter<HealthCheckResponse> responseStream, ServerCallContext context) =>
        base.Watch(request, new EndingStream(this, responseStream), context);

    /// <summary>Ends a watch that has told of the stop.</summary>
    private sealed class EndingStream(GrpcHealth health, IServerStreamWriter<HealthCheckResponse> inner) : IServerStreamWriter<HealthCheckResponse>
    {
        public WriteOptions? WriteOptions
        {
            get => inner.WriteOptions;
            set => inner.WriteOptions = value;
        }

        public async Task WriteAsync(HealthCheckResponse message)
        {
            await inner.WriteAsync(message).ConfigureAwait(false);
            if (health._isStopped && message.Status == ServingStatus.NotServing)
                throw new RpcException(new Status(StatusCode.Unavailable, "The server is stopping."));
        }
    }
}
