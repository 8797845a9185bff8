using Google.Protobuf;
using Google.Rpc;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Client;
using KvCluster.V1;

namespace KvCluster.ClusterTests.History;

/// <summary>
/// Unary calls to one node after the other. The caller tries the next node if one does not lead or does not answer. Requests that any replica may
/// answer go to all nodes in turn.
/// </summary>
internal sealed class UnaryStore(IReadOnlyList<GrpcChannel> nodes) : IObservedStore
{
    // Longer than a failover, so that calls wait for its end, and shorter than a test.
    private static readonly TimeSpan CallTime = TimeSpan.FromSeconds(3);

    private int _node;
    private int _replica;
    private readonly Dictionary<uint, Position> _seen = [];

    public Task<Observation> GetAsync(string key, KvReadMode read) => ReadAsync(read, async (kv, options, deadline) =>
    {
        var got = await kv.GetAsync(new GetRequest { Key = Bytes(key), Read = options }, deadline: deadline);
        var observed = got.Found ? new Observation("ok", Found: true, got.Value.ToStringUtf8(), EtagOf(got.Etag)) : new Observation("ok");
        return At(
            observed with { Seen = EtagOf(options.Seen.FirstOrDefault(seen => seen.Shard == got.Position.Shard)?.Etag ?? new V1.Etag()) }, got.Position) with
        {
            AgeUs = got.Position.HasAgeUs ? (long)got.Position.AgeUs : -1,
        };
    });

    public async Task<IReadOnlyDictionary<string, Observation>?> ScanAsync(string prefix, KvReadMode read)
    {
        var entries = new Dictionary<string, Observation>();
        var walked = await ReadAsync(read, async (kv, options, deadline) =>
        {
            using var scan = kv.Scan(new ScanRequest { Prefix = Bytes(prefix), Read = options }, deadline: deadline);
            await foreach (var page in scan.ResponseStream.ReadAllAsync())
                foreach (var entry in page.Entries)
                    entries.Add(entry.Key.ToStringUtf8(), new Observation("ok", Found: true, entry.Value.ToStringUtf8(), EtagOf(entry.Etag)));
            return new Observation("ok");
        });
        return walked.Status == "ok" ? entries : null;
    }

    public Task<Observation> PutAsync(string key, string value) => ObserveAsync(async (kv, deadline) =>
        Made((await kv.PutAsync(new PutRequest { Key = Bytes(key), Value = Bytes(value) }, deadline: deadline)).Position, found: false));

    public Task<Observation> PutIfAsync(string key, string? expected, string value)
    {
        var request = new PutRequest { Key = Bytes(key), Value = Bytes(value), Conditions = { Expecting(expected) } };
        return ObserveAsync(async (kv, deadline) => Made((await kv.PutAsync(request, deadline: deadline)).Position, found: true));
    }

    public Task<Observation> PutBothIfAsync((string Key, string Value) first, string? expected, (string Key, string Value) second)
    {
        var request = new WriteRequest { Conditions = { Expecting(expected, first.Key) }, Operations = { PutOf(first), PutOf(second) } };
        return ObserveAsync(async (kv, deadline) => Made((await kv.WriteAsync(request, deadline: deadline)).Position, found: true));
    }

    public Task<Observation> DeleteAsync(string key) => ObserveAsync(async (kv, deadline) =>
    {
        var deleted = await kv.DeleteAsync(new DeleteRequest { Key = Bytes(key) }, deadline: deadline);
        return At(new Observation("ok", Etag: deleted.Existed ? EtagOf(deleted.Position.Etag) : default) { Existed = deleted.Existed }, deleted.Position);
    });

    private Observation Made(Position position, bool found) => At(new Observation("ok", Found: found, Etag: EtagOf(position.Etag)), position);

    private Observation At(Observation observed, Position position)
    {
        if (!_seen.TryGetValue(position.Shard, out var seen) || EtagOf(position.Etag) > EtagOf(seen.Etag))
            _seen[position.Shard] = new Position { Shard = position.Shard, Etag = position.Etag };
        return observed with { Position = EtagOf(position.Etag), Shard = position.Shard };
    }

    private static Condition Expecting(string? expected, string key = "") =>
        expected is null ? new Condition { Key = Bytes(key), Exists = false } : new Condition { Key = Bytes(key), ValueEquals = Bytes(expected) };

    private static Operation PutOf((string Key, string Value) put) => new() { Put = new PutOperation { Key = Bytes(put.Key), Value = Bytes(put.Value) } };

    private Task<Observation> ReadAsync(KvReadMode read, Func<Kv.KvClient, ReadOptions, DateTime, Task<Observation>> operation) => read switch
    {
        KvReadMode.Leader => ObserveAsync((kv, deadline) => operation(kv, new ReadOptions { Mode = ReadMode.Leader }, deadline)),
        KvReadMode.Quorum => ObserveAsync((kv, deadline) => operation(kv, new ReadOptions { Mode = ReadMode.Quorum }, deadline)),
        KvReadMode.Replica => ObserveAsync((kv, deadline) => operation(kv, new ReadOptions { Mode = ReadMode.Replica }, deadline), _replica++),
        KvReadMode.Session =>
            ObserveAsync((kv, deadline) => operation(kv, new ReadOptions { Mode = ReadMode.Session, Seen = { _seen.Values } }, deadline), _replica++),
        KvReadMode.Stale => ObserveAsync((kv, deadline) => operation(kv, new ReadOptions { Mode = ReadMode.Stale }, deadline), _replica++),
        _ => throw new ArgumentOutOfRangeException(nameof(read), read, "Not a read of a history."),
    };

    private Task<Observation> ObserveAsync(Func<Kv.KvClient, DateTime, Task<Observation>> operation) => ObserveAsync(operation, _node);

    private async Task<Observation> ObserveAsync(Func<Kv.KvClient, DateTime, Task<Observation>> operation, int node)
    {
        try
        {
            return await operation(new Kv.KvClient(nodes[node % nodes.Count].Calls()), DateTime.UtcNow + CallTime);
        }
        catch (RpcException failure)
        {
            var info = failure.GetRpcStatus()?.GetDetail<ErrorInfo>();
            if (info?.Reason == "CONDITION_FAILED")
                return Observation.Refused;
            if (node == _node)
                _node++;
            return info is not null && info.Metadata.TryGetValue("applied", out var applied) && applied == "no" ? Observation.NotDone : Observation.Unknown;
        }
    }

    private static KvCluster.Etag EtagOf(V1.Etag etag) => new(etag.Epoch, etag.Change);

    private static ByteString Bytes(string text) => ByteString.CopyFromUtf8(text);
}
