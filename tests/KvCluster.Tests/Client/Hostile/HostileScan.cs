using System.Buffers.Binary;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Client;
using KvCluster.Client.Transport;
using KvCluster.V1;

namespace KvCluster.Tests.Client.Hostile;

/// <summary>
/// A scan at a node, which ends with the shard in which it begins, or at a router. Its snapshot is the state of the moment at which it arrived.
/// </summary>
internal sealed class HostileScan(HostileCluster cluster, HostileNode node, ScanRequest request, HostileStream<StreamMessage<ScanPage>> stream)
{
    private const int PageEntries = 3;
    private const int BreaksInOneOf = 8;

    private readonly Queue<ScanPage> _pages = new();

    public void Begin() => After(cluster.DelayOf(node.Scans), () =>
    {
        var range = new TextRange(
            request.Start.ToStringUtf8(), request.End.ToStringUtf8(), request.Prefix.ToStringUtf8(), request.ResumeAfter.ToStringUtf8());
        var atAnyReplica = request.Read?.Mode.IsForLeader() == false;
        if (!cluster.IsRouted && cluster.Model.RefusalOf(node, range.First, atAnyReplica) is { } refusal)
        {
            stream.End(refusal);
            return;
        }
        var moment = request.Snapshot.IsEmpty ? (atAnyReplica ? node.ReplicaMoment : cluster.Model.Moment)
            : BinaryPrimitives.ReadInt64LittleEndian(request.Snapshot.Span);
        if (!request.Snapshot.IsEmpty && cluster.IsHostile && cluster.Random.Next(2) == 0)
        {
            stream.End(CallStatus.SnapshotLost("the test has lost it").ToRpcException());
            return;
        }
        var route = cluster.Model.RouteOf(range.First);
        Fill(cluster.IsRouted ? null : route, range, moment);
        SendNext();
    });

    private void Fill(ShardRoute? within, TextRange range, long moment)
    {
        var position = cluster.Model.PositionOf(within ?? cluster.Model.RouteOf(range.First));
        foreach (var entries in cluster.Model.Entries(within, range, moment).Chunk(PageEntries))
        {
            _pages.Enqueue(new ScanPage
            {
                Position = position,
                Entries =
                {
                    entries.Select(static entry => new V1.Entry
                    {
                        Key = ByteString.CopyFromUtf8(entry.Key),
                        Value = ByteString.CopyFromUtf8(entry.State.Value!),
                        Etag = entry.State.Etag.ToMessage(),
                    }),
                },
            });
        }
        // A router has no snapshots that a later stream could name.
        if (within is not null && _pages.TryPeek(out var first))
        {
            var snapshot = new byte[sizeof(long)];
            BinaryPrimitives.WriteInt64LittleEndian(snapshot, moment);
            first.Snapshot = ByteString.CopyFrom(snapshot);
        }
        if (HostileModel.NextOf(within, range) is { } next)
            _pages.Enqueue(new ScanPage { NextStart = next });
    }

    private void SendNext()
    {
        if (!_pages.TryDequeue(out var page))
        {
            stream.End(null);
            return;
        }
        stream.Arrive(StreamMessage<ScanPage>.Of(page));
        if (node.Scans == Mood.Mixed && cluster.Random.Next(BreaksInOneOf) == 0)
            stream.End(new RpcException(new Status(StatusCode.Unavailable, "the stream was broken by the test")));
        else
            After(cluster.DelayOf(node.Scans), SendNext);
    }

    // Without a delay nothing follows any more. What is lost on the way is lost for good.
    private void After(long? delayMs, Action action)
    {
        if (delayMs is not { } delay)
            return;
        cluster.Clock.After(delay, () =>
        {
            if (node.IsDown)
                stream.End(new RpcException(new Status(StatusCode.Unavailable, "connection refused")));
            else if (!stream.HasEnded && !node.IsCut)
                action();
        });
    }
}
