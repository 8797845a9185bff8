using System.Globalization;
using System.Text;
using KvCluster.Benchmarks.Cluster;
using KvCluster.Cli.Bench;

namespace KvCluster.Benchmarks.Clients;

/// <summary>
/// One Redis server without replicas, synced before each answer, over as many connections as every system has. Redis has no order of keys, so that a sorted set
/// of all keys stands beside them: an insert adds to it, and a scan asks it for keys and then for their values. The append-only file is not rewritten while it
/// is measured.
/// </summary>
internal sealed class RedisStore : IYcsbStore
{
    private const int Connections = 4;
    private const int BatchRecords = 500;

    private static readonly byte[] GetCommand = "GET"u8.ToArray();
    private static readonly byte[] SetCommand = "SET"u8.ToArray();
    private static readonly byte[] GetManyCommand = "MGET"u8.ToArray();
    private static readonly byte[] SetManyCommand = "MSET"u8.ToArray();
    private static readonly byte[] AddCommand = "ZADD"u8.ToArray();
    private static readonly byte[] RangeCommand = "ZRANGEBYLEX"u8.ToArray();
    private static readonly byte[] LimitWord = "LIMIT"u8.ToArray();
    private static readonly byte[] KeyIndex = "index"u8.ToArray();
    private static readonly byte[] Zero = "0"u8.ToArray();
    private static readonly byte[] AfterAll = "+"u8.ToArray();

    private readonly RedisServer _server;
    private readonly RedisConnection[] _connections;

    private RedisStore(RedisServer server, RedisConnection[] connections, int records) => (_server, _connections, Records) = (server, connections, records);

    public string Name => "redis, 1 server";

    public int Records { get; }

    public IReadOnlyList<int> Servers => [_server.Id];

    public static async Task<RedisStore> StartAsync(int records, CancellationToken cancellation)
    {
        var server = await RedisServer.StartAsync(["--auto-aof-rewrite-percentage", "0"], cancellation);
        var connections = new RedisConnection[Connections];
        for (var index = 0; index < Connections; index++)
            connections[index] = await RedisConnection.OpenAsync(server.Port, cancellation);
        return new RedisStore(server, connections, records);
    }

    public Task LoadAsync(byte[][] values, CancellationToken cancellation) => BatchedLoad.RunAsync(
        Records, BatchRecords,
        (first, count) =>
        {
            var set = new List<ReadOnlyMemory<byte>> { SetManyCommand };
            var add = new List<ReadOnlyMemory<byte>> { AddCommand, KeyIndex };
            for (var number = first; number < first + count; number++)
            {
                var key = BenchKeys.At(number);
                set.AddRange([key, values[number & (values.Length - 1)]]);
                add.AddRange([Zero, key]);
            }
            var connection = ConnectionOf(first / BatchRecords);
            return Task.WhenAll(connection.CallAsync(set.ToArray()), connection.CallAsync(add.ToArray()));
        },
        cancellation);

    public async ValueTask<bool> GetAsync(int caller, ReadOnlyMemory<byte> key) => (await ConnectionOf(caller).CallAsync(GetCommand, key)).Bytes is not null;

    public async ValueTask PutAsync(int caller, ReadOnlyMemory<byte> key, byte[] value) => await ConnectionOf(caller).CallAsync(SetCommand, key, value);

    public async ValueTask InsertAsync(int caller, ReadOnlyMemory<byte> key, byte[] value)
    {
        var connection = ConnectionOf(caller);
        await Task.WhenAll(connection.CallAsync(SetCommand, key, value), connection.CallAsync(AddCommand, KeyIndex, Zero, key));
    }

    public async ValueTask<int> ScanAsync(int caller, ReadOnlyMemory<byte> start, int limit)
    {
        var connection = ConnectionOf(caller);
        var keys = await connection.CallAsync(RangeCommand, KeyIndex, From(start), AfterAll, LimitWord, Zero, NumberOf(limit));
        if (keys.Items is not { Length: > 0 } found)
            return 0;
        ReadOnlyMemory<byte>[] get = [GetManyCommand, .. found.Select(static key => (ReadOnlyMemory<byte>)key.Bytes)];
        return (await connection.CallAsync(get)).Items!.Count(static value => value.Bytes is not null);
    }

    public async ValueTask DisposeAsync()
    {
        foreach (var connection in _connections)
            await connection.DisposeAsync();
        await _server.DisposeAsync();
    }

    // A range that begins with a key, which is part of it.
    private static byte[] From(ReadOnlyMemory<byte> key) => [(byte)'[', .. key.Span];

    private static byte[] NumberOf(int number) => Encoding.UTF8.GetBytes(number.ToString(CultureInfo.InvariantCulture));

    private RedisConnection ConnectionOf(int caller) => _connections[caller % _connections.Length];
}
