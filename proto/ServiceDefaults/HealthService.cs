// Answers health checks of any gRPC prober. A singleton of a node or router, mapped by MapGrpcService<HealthService>(). The process sets the statuses, from
// any thread.
using System.Collections.Immutable;
using Grpc.Core;
using Grpc.Health.V1;
using ServingStatus = Grpc.Health.V1.HealthCheckResponse.Types.ServingStatus;

namespace KvCluster.ServiceDefaults;

/// <summary>Answers grpc.health.v1. At first it knows only the server as a whole, with the status NotServing.</summary>
internal sealed class HealthService : Health.HealthBase
{
    private readonly Lock _gate = new();
    private volatile Snapshot _snapshot = new(ImmutableDictionary<string, ServingStatus>.Empty.Add("", ServingStatus.NotServing), isStopped: false);

    /// <summary>Sets the status of a service; the empty name is the server as a whole.</summary>
    public void SetStatus(string service, ServingStatus status) =>
        Replace(snapshot => new Snapshot(snapshot.Statuses.SetItem(service, status), snapshot.IsStopped));

    /// <summary>Sets everything to NotServing for good. Watches report that and end.</summary>
    public void Stop() =>
        Replace(snapshot => new Snapshot(snapshot.Statuses.ToImmutableDictionary(entry => entry.Key, _ => ServingStatus.NotServing), isStopped: true));

    /// <inheritdoc/>
    public override Task<HealthCheckResponse> Check(HealthCheckRequest request, ServerCallContext context) =>
        _snapshot.Statuses.TryGetValue(request.Service, out var status)
            ? Task.FromResult(new HealthCheckResponse { Status = status })
            : throw new RpcException(new Status(StatusCode.NotFound, "This server has no service of that name."));

    /// <inheritdoc/>
    public override async Task Watch(HealthCheckRequest request, IServerStreamWriter<HealthCheckResponse> responseStream, ServerCallContext context)
    {
        ServingStatus? sent = null;
        while (true)
        {
            var snapshot = _snapshot;
            var status = snapshot.Statuses.GetValueOrDefault(request.Service, ServingStatus.ServiceUnknown);
            if (status != sent)
                await responseStream.WriteAsync(new HealthCheckResponse { Status = status }).ConfigureAwait(false);
            sent = status;
            if (snapshot.IsStopped)
                throw new RpcException(new Status(StatusCode.Unavailable, "The server is stopping."));
            await snapshot.Replaced.Task.WaitAsync(context.CancellationToken).ConfigureAwait(false);
        }
    }

    private void Replace(Func<Snapshot, Snapshot> change)
    {
        Snapshot replaced;
        lock (_gate)
        {
            replaced = _snapshot;
            _snapshot = change(replaced);
        }
        replaced.Replaced.SetResult();
    }

    private sealed class Snapshot(ImmutableDictionary<string, ServingStatus> statuses, bool isStopped)
    {
        public ImmutableDictionary<string, ServingStatus> Statuses { get; } = statuses;

        public bool IsStopped { get; } = isStopped;

        /// <summary>Completes when there is a newer snapshot.</summary>
        public TaskCompletionSource Replaced { get; } = new(TaskCreationOptions.RunContinuationsAsynchronously);
    }
}
