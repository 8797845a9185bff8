using System.Security.Cryptography;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Internal.Etcd;
using KvCluster.Node.Coordination.Embedded;
using KvCluster.Node.Coordination.Etcd;
using KvCluster.ServiceDefaults.Connections;
using KvCluster.ServiceDefaults.Hosting;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Connections.Features;
using Microsoft.AspNetCore.Http.Features;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Node;

/// <summary>
/// An embedded coordinator behind etcd's API that counts what it receives and can fail as etcd does. Unlike the real server of one it sends snapshots: some
/// random bytes and their checksum.
/// </summary>
internal sealed class CountingEtcd : IAsyncDisposable
{
    private const int PagesBytes = 8_192;

    private readonly TemporaryDirectory _directory = new();
    private readonly WebApplication _app;
    private int _changes;
    private int _snapshots;

    private CountingEtcd()
    {
        Coordinator = EmbeddedCoordinator.Open(_directory.Path, TimeProvider.System);
        var builder = ServerBuilder.Create(NullLoggerFactory.Instance, new Uri("http://127.0.0.1:0"), limits: ListenerLimits.OfCoordinator());
        builder.Services.AddGrpc();
        builder.Services.AddSingleton(new KvCalls(this)).AddSingleton(new MaintenanceCalls(this));
        _app = builder.Build();
        _app.MapGrpcService<KvCalls>();
        _app.MapGrpcService<MaintenanceCalls>();
    }

    public EmbeddedCoordinator Coordinator { get; }

    public string Address => _app.Urls.Single();

    /// <summary>The answer to every change; null: they are applied.</summary>
    public Status? Refusal { get; set; }

    /// <summary>Whether a change's connection breaks when the change has been applied, instead of an answer.</summary>
    public bool BreaksConnections { get; set; }

    /// <summary>Whether a snapshot stops after its first part, while the connection stays open.</summary>
    public bool FallsSilent { get; set; }

    /// <summary>Changes received.</summary>
    public int Changes => Volatile.Read(ref _changes);

    /// <summary>Snapshots begun.</summary>
    public int Snapshots => Volatile.Read(ref _snapshots);

    public static async Task<CountingEtcd> StartAsync()
    {
        var etcd = new CountingEtcd();
        await etcd._app.StartAsync();
        return etcd;
    }

    public async ValueTask DisposeAsync()
    {
        await _app.StopAsync(new CancellationToken(canceled: true));
        await _app.DisposeAsync();
        await Coordinator.DisposeAsync();
        _directory.Dispose();
    }

    private sealed class KvCalls(CountingEtcd etcd) : KV.KVBase
    {
        public override Task<RangeResponse> Range(RangeRequest request, ServerCallContext context) => EtcdStatus.Answer(() => etcd.Coordinator.Range(request));

        public override Task<TxnResponse> Txn(TxnRequest request, ServerCallContext context)
        {
            Interlocked.Increment(ref etcd._changes);
            if (etcd.Refusal is { } refusal)
                throw new RpcException(refusal);
            var answer = EtcdStatus.Answer(() => etcd.Coordinator.Execute(request));
            if (etcd.BreaksConnections)
                context.GetHttpContext().Features.GetRequiredFeature<IConnectionLifetimeFeature>().Abort();
            return answer;
        }
    }

    private sealed class MaintenanceCalls(CountingEtcd etcd) : Maintenance.MaintenanceBase
    {
        public override async Task Snapshot(SnapshotRequest request, IServerStreamWriter<SnapshotResponse> responseStream, ServerCallContext context)
        {
            Interlocked.Increment(ref etcd._snapshots);
            var pages = RandomNumberGenerator.GetBytes(PagesBytes);
            await responseStream.WriteAsync(new SnapshotResponse { Blob = ByteString.CopyFrom(pages) });
            if (etcd.FallsSilent)
                await Task.Delay(Timeout.Infinite, context.CancellationToken);
            await responseStream.WriteAsync(new SnapshotResponse { Blob = ByteString.CopyFrom(SHA256.HashData(pages)) });
        }
    }
}
