using Etcdserverpb;
using Google.Protobuf;
using KvCluster.Benchmarks.Cluster;
using KvCluster.Cli.Bench;
using KvCluster.Client;
using KvCluster.Processes;

namespace KvCluster.Benchmarks.Clients;

/// <summary>
/// An etcd of three members with its own durability and its default quota of 2 GiB, called at its leader by unary calls. It keeps former values until they are
/// compacted, so it gets fewer records than others.
/// </summary>
internal sealed class EtcdStore : IYcsbStore
{
    /// <summary>Its name in the table.</summary>
    public const string Peer = "etcd, unary";

    private const int Members = 3;
    private const int RecordsMax = 1_000_000;

    // A transaction of etcd has at most 128 operations by default.
    private const int BatchRecords = 100;

    private static readonly ByteString End = UnsafeByteOperations.UnsafeWrap(new KvKey(BenchKeys.Prefix).PrefixEnd.Memory);

    private readonly EtcdProcesses _members;
    private readonly Channels _channels;
    private readonly KV.KVClient[] _clients;

    private EtcdStore(EtcdProcesses members, string leader, int records)
    {
        (_members, _channels, Records) = (members, new Channels(leader), Math.Min(records, RecordsMax));
        _clients = _channels.Clients(static channel => new KV.KVClient(channel));
    }

    public string Name => Peer;

    public int Records { get; }

    public IReadOnlyList<int> Servers => _members.ProcessIds;

    public static async Task<EtcdStore> StartAsync(int records)
    {
        var members = await EtcdProcesses.StartAsync(Members, arguments: [EtcdProcesses.WithSyncs]);
        return new EtcdStore(members, members.Endpoints[await members.LeaderAsync()], records);
    }

    public Task LoadAsync(byte[][] values, CancellationToken cancellation) => BatchedLoad.RunAsync(
        Records, BatchRecords,
        async (first, count) =>
        {
            var request = new TxnRequest();
            for (var number = first; number < first + count; number++)
                request.Success.Add(new RequestOp { RequestPut = PutOf(BenchKeys.At(number), values[number & (values.Length - 1)]) });
            await ClientOf(first / BatchRecords).TxnAsync(request, cancellationToken: cancellation);
        },
        cancellation);

    public async ValueTask<bool> GetAsync(int caller, ReadOnlyMemory<byte> key) =>
        (await ClientOf(caller).RangeAsync(new RangeRequest { Key = UnsafeByteOperations.UnsafeWrap(key) })).Kvs.Count == 1;

    public async ValueTask PutAsync(int caller, ReadOnlyMemory<byte> key, byte[] value) => await ClientOf(caller).PutAsync(PutOf(key, value));

    public ValueTask InsertAsync(int caller, ReadOnlyMemory<byte> key, byte[] value) => PutAsync(caller, key, value);

    public async ValueTask<int> ScanAsync(int caller, ReadOnlyMemory<byte> start, int limit) => (await ClientOf(caller).RangeAsync(
        new RangeRequest { Key = UnsafeByteOperations.UnsafeWrap(start), RangeEnd = End, Limit = limit })).Kvs.Count;

    public async ValueTask DisposeAsync()
    {
        _channels.Dispose();
        await _members.DisposeAsync();
    }

    private static PutRequest PutOf(ReadOnlyMemory<byte> key, byte[] value) =>
        new() { Key = UnsafeByteOperations.UnsafeWrap(key), Value = UnsafeByteOperations.UnsafeWrap(value) };

    private KV.KVClient ClientOf(int caller) => _clients[caller % _clients.Length];
}
