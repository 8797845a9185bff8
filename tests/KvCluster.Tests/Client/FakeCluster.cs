using System.Collections.Concurrent;
using Google.Protobuf;
using KvCluster.Client;
using KvCluster.V1;
using Microsoft.AspNetCore.Connections;

namespace KvCluster.Tests.Client;

/// <summary>
/// Nodes that serve one dictionary, split into shards with a leader each, and send maps and hints as real nodes do. A node's script makes calls fail
/// as a test wants. For tests of the client library, the router and `kv`.
/// </summary>
internal sealed class FakeCluster : IAsyncDisposable
{
    private readonly Lock _lock = new();
    private readonly SortedDictionary<byte[], (byte[] Value, V1.Etag Etag)> _entries = new(Comparer<byte[]>.Create((a, b) => a.AsSpan().SequenceCompareTo(b)));
    private ShardRoute[] _routes;
    private ulong _change;

    private FakeCluster(byte[][] splits, uint nodes, uint firstShard) => _routes =
    [
        .. Enumerable.Range(0, splits.Length + 1).Select(index => new ShardRoute
        {
            Shard = (uint)index + firstShard,
            Start = index == 0 ? ByteString.Empty : ByteString.CopyFrom(splits[index - 1]),
            End = index == splits.Length ? ByteString.Empty : ByteString.CopyFrom(splits[index]),
            Generation = 1,
            Epoch = 1,
            Leader = ((uint)index % nodes) + 1,
            Nodes = { Enumerable.Range(1, (int)nodes).Select(node => (uint)node) },
        }),
    ];

    public List<FakeNode> Nodes { get; } = [];

    /// <summary>Counts applied operations by key, which reveals any that were applied twice.</summary>
    public ConcurrentDictionary<string, int> Applied { get; } = new();

    /// <summary>The sessions by shard and etag's change, with the answers to their requests. Removing one ends it.</summary>
    public ConcurrentDictionary<(uint Shard, ulong Change), Dictionary<ulong, Reply>> Results { get; } = new();

    /// <summary>A random id for each cluster.</summary>
    public string ClusterId { get; } = Guid.NewGuid().ToString("N");

    /// <summary>Addresses that the map contains instead of a node's own.</summary>
    public ConcurrentDictionary<uint, string> AddressesTold { get; } = new();

    /// <summary>Whether the map names the nodes. Without them it has the shards only.</summary>
    public bool NamesNodes { get; set; } = true;

    public string Endpoint => Nodes[0].Address;

    /// <summary>A client with a timeout that none of its calls reaches, on any machine.</summary>
    public KvClient Connect(KvReadMode read = KvReadMode.Leader, bool exactlyOnce = true) =>
        new(new KvClientOptions { Endpoints = [Endpoint], Read = read, ExactlyOnce = exactlyOnce, Timeout = Eventually.Limit });

    public static Task<FakeCluster> StartAsync(int nodes, params string[] splits) => StartAsync(nodes, firstShard: 1, splits);

    /// <param name="nodes">The number of nodes.</param>
    /// <param name="firstShard">The number of the shard with the first keys. In a real cluster it is 0.</param>
    /// <param name="splits">Where the other shards begin.</param>
    public static async Task<FakeCluster> StartAsync(int nodes, uint firstShard, params string[] splits)
    {
        var cluster = new FakeCluster([.. splits.Select(System.Text.Encoding.UTF8.GetBytes)], (uint)nodes, firstShard);
        for (var node = 1; node <= nodes; node++)
            cluster.Nodes.Add(await FakeNode.StartAsync(cluster, (uint)node, port: 0));
        return cluster;
    }

    public async ValueTask DisposeAsync()
    {
        foreach (var node in Nodes)
            await node.DisposeAsync();
    }

    /// <summary>Stops a node and restarts it on the same port.</summary>
    public async Task<FakeNode> RestartAsync(FakeNode node)
    {
        await node.DisposeAsync();
        await Eventually.TrueAsync(async () =>
        {
            try
            {
                Nodes[(int)node.Id - 1] = await FakeNode.StartAsync(this, node.Id, new Uri(node.Address).Port);
                return true;
            }
            catch (IOException failure) when (failure.InnerException is AddressInUseException)
            {
                // Another test has got the port meanwhile, and returns it soon.
                return false;
            }
        }, "the node's port is free");
        return Nodes[(int)node.Id - 1];
    }

    /// <summary>Gives a shard a new leader in a new epoch. Clients learn of it by hints only, until <see cref="Announce"/>.</summary>
    public void Lead(uint shard, uint node)
    {
        lock (_lock)
        {
            var route = _routes[shard - _routes[0].Shard].Clone();
            route.Leader = node;
            route.Epoch++;
            _routes[shard - _routes[0].Shard] = route;
        }
    }

    /// <summary>Makes a shard of the keys from one on, up to the end of the shard that had them. Clients learn of it as of a new leader.</summary>
    public void Split(string at, uint leader)
    {
        lock (_lock)
        {
            var key = ByteString.CopyFromUtf8(at);
            var split = RouteOf(key.Span);
            var upper = new ShardRoute(split) { Shard = _routes[0].Shard + (uint)_routes.Length, Start = key, Leader = leader };
            var lower = new ShardRoute(split) { End = key, Generation = split.Generation + 1 };
            _routes = [.. _routes.Select(route => route == split ? lower : route), upper];
        }
    }

    /// <summary>Sends the map on every map stream.</summary>
    public void Announce()
    {
        foreach (var node in Nodes)
            node.SendMap(ToMap());
    }

    public V1.ShardMap ToMap()
    {
        lock (_lock)
        {
            return new V1.ShardMap
            {
                Cluster = "fake",
                ClusterId = ClusterId,
                Complete = true,
                Shards = { _routes },
                Nodes = { Nodes.Where(_ => NamesNodes)
                    .Select(node => new NodeAddress { Node = node.Id, Address = AddressesTold.GetValueOrDefault(node.Id, node.Address) }) },
            };
        }
    }

    public ShardRoute RouteOf(ReadOnlySpan<byte> key)
    {
        lock (_lock)
        {
            foreach (var route in _routes)
            {
                if (key.SequenceCompareTo(route.Start.Span) >= 0 && (route.End.IsEmpty || key.SequenceCompareTo(route.End.Span) < 0))
                    return route;
            }
        }
        throw new InvalidOperationException("The map has a gap.");
    }

    /// <summary>What reads tell of every key.</summary>
    public Life? Life { get; set; }

    public GetResponse Get(ReadOnlySpan<byte> key)
    {
        var position = new Position { Shard = RouteOf(key).Shard };
        lock (_lock)
        {
            position.Etag = EtagLocked();
            return _entries.TryGetValue(key.ToArray(), out var entry)
                ? new GetResponse { Position = position, Found = true, Value = ByteString.CopyFrom(entry.Value), Etag = entry.Etag, Life = Life }
                : new GetResponse { Position = position };
        }
    }

    /// <summary>Null if a condition did not hold.</summary>
    public Position? Write(IEnumerable<Condition> conditions, IEnumerable<Operation> operations)
    {
        lock (_lock)
        {
            if (!conditions.All(HoldsLocked))
                return null;
            uint shard = 0;
            foreach (var operation in operations)
            {
                _change++;
                var key = (operation.Put?.Key ?? operation.Delete.Key).ToByteArray();
                shard = RouteOf(key).Shard;
                Applied.AddOrUpdate(System.Text.Encoding.UTF8.GetString(key), 1, (_, count) => count + 1);
                if (operation.Put is { } put)
                    _entries[key] = (put.Value.ToByteArray(), EtagLocked());
                else
                    _entries.Remove(key);
            }
            return new Position { Shard = shard, Etag = EtagLocked() };
        }
    }

    /// <summary>Opens a session in a shard.</summary>
    public OpenSessionResponse OpenSession(uint shard)
    {
        lock (_lock)
        {
            _change++;
            Results[(shard, _change)] = [];
            var id = new byte[16];
            System.Buffers.Binary.BinaryPrimitives.WriteUInt64LittleEndian(id, _change);
            return new OpenSessionResponse { Position = new Position { Shard = shard, Etag = EtagLocked() }, Session = ByteString.CopyFrom(id) };
        }
    }

    /// <summary>Ends a session of a shard.</summary>
    public EndSessionResponse EndSession(uint shard, ByteString session)
    {
        lock (_lock)
        {
            var existed = Results.TryRemove((shard, System.Buffers.Binary.BinaryPrimitives.ReadUInt64LittleEndian(session.Span)), out _);
            return new EndSessionResponse { Position = new Position { Shard = shard, Etag = EtagLocked() }, Existed = existed };
        }
    }

    /// <summary>The answer to an identified change, which is executed if it comes for the first time. Null if its session is unknown.</summary>
    public Reply? Once(uint shard, RequestId id, Func<Reply> execute)
    {
        lock (_lock)
        {
            if (id.Shard != shard
                || !Results.TryGetValue((shard, System.Buffers.Binary.BinaryPrimitives.ReadUInt64LittleEndian(id.Session.Span)), out var results))
                return null;
            Assert.True(id.Sequence >= id.LowestOpen && id.Sequence - id.LowestOpen < 4_096, $"{id} is outside the window.");
            if (!results.TryGetValue(id.Sequence, out var reply))
                results.Add(id.Sequence, reply = execute());
            return reply;
        }
    }

    /// <summary>The entries of one shard's part of a range, in pages of a few.</summary>
    public IEnumerable<ScanPage> Scan(ShardRoute route, ScanRequest request, int pageEntries)
    {
        KeyValuePair<byte[], (byte[] Value, V1.Etag Etag)>[] entries;
        lock (_lock)
            entries = [.. _entries.Where(entry => IsIn(route, request, entry.Key))];
        if (request.Reverse)
            Array.Reverse(entries);
        if (request.Limit > 0)
            entries = [.. entries.Take((int)Math.Min(request.Limit, int.MaxValue))];
        foreach (var chunk in entries.Chunk(pageEntries))
        {
            yield return new ScanPage
            {
                Position = new Position { Shard = route.Shard, Etag = new V1.Etag { Epoch = 1, Change = _change } },
                Entries =
                {
                    chunk.Select(entry => new Entry
                    {
                        Key = ByteString.CopyFrom(entry.Key), Value = request.KeysOnly ? ByteString.Empty : ByteString.CopyFrom(entry.Value.Value),
                        Etag = entry.Value.Etag
                    })
                },
            };
        }
        var next = request.Reverse ? route.Start : route.End;
        var goesOn = !next.IsEmpty && (request.Reverse
            ? (request.Start.IsEmpty || request.Start.Span.SequenceCompareTo(next.Span) < 0) && request.Prefix.Span.SequenceCompareTo(next.Span) < 0
            : (request.End.IsEmpty || next.Span.SequenceCompareTo(request.End.Span) < 0)
                && (next.Span.SequenceCompareTo(request.Prefix.Span) < 0 || next.Span.StartsWith(request.Prefix.Span)));
        if (goesOn && (request.Limit == 0 || (ulong)entries.Length < request.Limit))
            yield return new ScanPage { NextStart = next };
    }

    private static bool IsIn(ShardRoute route, ScanRequest request, byte[] key)
    {
        var span = key.AsSpan();
        var after = request.ResumeAfter.IsEmpty
            || (request.Reverse ? span.SequenceCompareTo(request.ResumeAfter.Span) < 0 : span.SequenceCompareTo(request.ResumeAfter.Span) > 0);
        return after
            && span.SequenceCompareTo(route.Start.Span) >= 0 && (route.End.IsEmpty || span.SequenceCompareTo(route.End.Span) < 0)
            && span.SequenceCompareTo(request.Start.Span) >= 0 && (request.End.IsEmpty || span.SequenceCompareTo(request.End.Span) < 0)
            && span.StartsWith(request.Prefix.Span);
    }

    private V1.Etag EtagLocked() => new() { Epoch = 1, Change = _change };

    private bool HoldsLocked(Condition condition)
    {
        var exists = _entries.TryGetValue(condition.Key.ToByteArray(), out var entry);
        return condition.TestCase switch
        {
            Condition.TestOneofCase.Exists => exists == condition.Exists,
            Condition.TestOneofCase.EtagEquals => exists && entry.Etag.Equals(condition.EtagEquals),
            Condition.TestOneofCase.ValueEquals => exists && condition.ValueEquals.Span.SequenceEqual(entry.Value),
            _ => throw new InvalidOperationException("A condition without an expectation."),
        };
    }
}
