using System.Buffers.Binary;
using System.Text;
using KvCluster.Client;
using KvCluster.Client.Runtime;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;
using WriteResult = KvCluster.Storage.Sessions.WriteResult;

namespace KvCluster.Simulation.Cluster.Routing;

/// <summary>
/// A process with the real <see cref="KvClient"/>: its map with the last hit, its retries and deadlines, its sessions. One operation at a time,
/// sometimes very many, on keys of the shard under test and of each node's own shard. Its answers go into the run's history like any caller's, and
/// every call must end by its deadline.
/// </summary>
internal sealed class RoutedClient : IDisposable
{
    private const int Keys = 3;
    private const long TimeoutUs = 1_500_000;

    // The longest pause between two attempts, and the rounding of a connection.
    private const long SlackUs = 120_000;

    private readonly ClusterRun _run;
    private readonly ClusterHistory _history;
    private readonly KvClient _client;
    private readonly int _thread = Environment.CurrentManagedThreadId;
    private readonly CommittedLog.Version[] _seen = new CommittedLog.Version[Keys];
    private readonly Dictionary<NodeId, (long Acknowledged, long Sent)> _ofNeighbours = [];
    private readonly HashSet<NodeId> _nodesRead = [];
    private readonly HashSet<KvReadMode> _modesRead = [];
    private Etag _session;
    private bool _mayWriteMany;
    private int _open;
    private int _openWrites;

    public RoutedClient(ClusterRun run, ClusterHistory history, int number)
    {
        _run = run;
        _history = history;
        Number = number;
        Network = new RoutedNetwork(run);
        var options = new KvClientOptions
        {
            // There may be no node at the first address yet, or never.
            Endpoints = [RoutedNetwork.AddressOf(new((uint)run.Random.Next(4) + 1)), RoutedNetwork.AddressOf(new((uint)run.Random.Next(3) + 1))],
            Timeout = TimeSpan.FromMicroseconds(TimeoutUs),
        };
        _client = new KvClient(options, Network, new ClientRuntime(run.Time, run.Random.NextDouble, TaskCreationOptions.None));
    }

    public int Number { get; }

    /// <summary>The library's client.</summary>
    public KvClient Client => _client;

    public RoutedNetwork Network { get; }

    /// <summary>No write is open, and since healing it has read in every mode and from the shard of every node that is up.</summary>
    public bool IsSettled => _openWrites == 0 && ModesToRead.Length == 0 && NodesToRead.Length == 0;

    public string State => $"caller {Number}: {_open} calls are open, {Network.Refreshes} refreshes; "
        + $"since healing it has not read {string.Join(' ', ModesToRead)}, nor from nodes {string.Join(' ', NodesToRead)}";

    private KvReadMode[] ModesToRead => [.. Enum.GetValues<KvReadMode>().Where(mode => !_modesRead.Contains(mode))];

    private NodeId[] NodesToRead => [.. _run.Nodes.Where(node => node.IsUp && !_nodesRead.Contains(node.Id)).Select(static node => node.Id)];

    public void Start() => _run.Time.After(_run.Random.NextInt64(10_000), Next);

    public void Dispose() => _client.DisposeAsync().AsTask().Wait();

    private void Next()
    {
        if (_run.Random.Next(_run.Conditions.CallsAtOnce > 1_000 ? 8 : 40) == 0 && !_run.Healed)
        {
            StartMany();
            return;
        }

        Begin(_run.Healed ? AfterHealingAsync() : _run.Random.Next(5) switch
        {
            0 => ReadAsync(DrawMode()),
            1 => OfNeighbourAsync(_run.Nodes[_run.Random.Next(_run.Nodes.Count)].Id),
            _ => WriteAsync(),
        }, () => _run.Time.After(_run.Random.NextInt64(200, _run.Healed ? 60_000 : 20_000), Next));
    }

    // Required reads come first, in turn. When they were drawn at random among calls to nodes that never start, each of which takes its whole time,
    // one in some thousand callers missed one.
    private Task AfterHealingAsync() =>
        ModesToRead is [var mode, ..] ? ReadAsync(mode)
        : NodesToRead is { Length: > 0 } nodes ? OfNeighbourAsync(nodes[_run.Random.Next(nodes.Length)])
        : ReadAsync(DrawMode());

    // As when a leader has died and all of a process's requests wait for the next one.
    private void StartMany()
    {
        var left = _run.Conditions.CallsAtOnce;
        _run.Trace($"caller {Number} makes {left} calls at once");
        for (var call = _run.Conditions.CallsAtOnce; call > 0; call--)
        {
            // Sessions have places for some thousands.
            Begin(call <= 100 && _mayWriteMany ? WriteAsync() : ReadAsync(KvReadMode.Leader), () =>
            {
                if (--left == 0)
                    _run.Time.After(_run.Random.NextInt64(20_000), Next);
            });
        }
    }

    private KvReadMode DrawMode() => (KvReadMode)_run.Random.Next(Enum.GetValues<KvReadMode>().Length);

    private void Begin(Task call, Action then)
    {
        _open++;
        var ended = false;
        _run.Time.After(TimeoutUs + SlackUs, () => Violation.Unless(
            ended, Rule.EndsInTime, $"a call of caller {Number} has not ended {(TimeoutUs + SlackUs) / 1_000} ms after its begin"));
        _ = EndAsync();

        async Task EndAsync()
        {
            try
            {
                await call.ConfigureAwait(false);
                Violation.Unless(Environment.CurrentManagedThreadId == _thread, Rule.Contract, $"caller {Number} goes on on another thread");
                ended = true;
                _open--;
                then();
            }
            catch (Exception broken)
            {
                _run.Throw(broken);
            }
        }
    }

    private async Task WriteAsync()
    {
        var keys = _run.Random.Next(4) == 0 ? [0, 1, 2] : new[] { _run.Random.Next(Keys) };
        // The history distinguishes writes identified by their caller from those that the client library identifies, which get a single answer.
        var write = _history.Begin(keys, deletes: false, sizeof(long), DrawCondition(keys[0]), 0, 0);
        var request = new KvWrite();
        if (write.Condition is { } condition)
            request.If(ToMessage(condition));
        foreach (var key in keys)
            request.Put(ClusterData.Key(key), write.Value);
        request.Put(ClusterData.Marker(write.Id), ClusterData.Value(write.Id));
        _openWrites++;
        var (outcome, etag) = await OutcomeAsync(PositionOfAsync(request)).ConfigureAwait(false);
        _openWrites--;
        _run.Transcript.Answer(_run.NowUs, $"caller {Number}: write {write.Id} {outcome}", etag);
        _history.OnWrite(write, new WriteResult(outcome, etag, -1, 0), _run.NowUs);
        if (outcome is WriteOutcome.Applied or WriteOutcome.ConditionFailed)
            See(etag);
        if (outcome != WriteOutcome.Applied)
            return;
        _mayWriteMany = true;
        var first = write.FirstOf(etag);
        for (var i = 0; i < keys.Length; i++)
            _seen[keys[i]] = new CommittedLog.Version(new Etag(first.Epoch, first.Change + (ulong)i), write.Value);
    }

    private ClusterCondition? DrawCondition(int key)
    {
        if (_run.Random.Next(3) != 0)
            return null;
        var seen = _seen[key];
        return _run.Random.Next(3) switch
        {
            _ when !seen.Exists => new ClusterCondition(key, ConditionKind.Absent, Etag.None, []),
            0 => new ClusterCondition(key, ConditionKind.Exists, Etag.None, []),
            1 => new ClusterCondition(key, ConditionKind.EtagEquals, seen.Etag, []),
            _ => new ClusterCondition(key, ConditionKind.ValueEquals, Etag.None, seen.Value!),
        };
    }

    private static KvCondition ToMessage(ClusterCondition condition) => condition.Kind switch
    {
        ConditionKind.Absent => KvCondition.Absent(ClusterData.Key(condition.Key)),
        ConditionKind.Exists => KvCondition.Exists(ClusterData.Key(condition.Key)),
        ConditionKind.EtagEquals => KvCondition.EtagEquals(condition.Etag, ClusterData.Key(condition.Key)),
        _ => KvCondition.ValueEquals(condition.Value, ClusterData.Key(condition.Key)),
    };

    private async Task ReadAsync(KvReadMode mode)
    {
        var keys = _run.Random.Next(4) == 0 ? [0, 1, 2] : new[] { _run.Random.Next(Keys) };
        var least = mode switch { KvReadMode.Stale => Etag.None, KvReadMode.Session => _session, _ => _history.Floor };
        IReadOnlyList<GetResult> found;
        try
        {
            found = keys.Length == 1
                ? [await _client.GetAsync(ClusterData.Key(keys[0]), mode).ConfigureAwait(false)]
                : await _client.GetManyAsync([.. keys.Select(key => (KvKey)ClusterData.Key(key))], mode).ConfigureAwait(false);
        }
        catch (KvUnavailableException unavailable)
        {
            _run.Trace($"caller {Number}: a read of keys {string.Join(' ', keys)} fails: {unavailable.Message}");
            return;
        }

        var read = new ClusterRead(
            found[0].Position.Etag, [.. found.Select(static entry => new CommittedLog.Version(entry.Etag, entry.Found ? entry.Value.ToArray() : null))],
            _run.NowUs, null);
        _run.Transcript.Answer(_run.NowUs, $"caller {Number}: {mode} keys {string.Join(' ', keys)} are {read.Shown}", read.Etag);
        _history.OnRead(keys, read, least, atFollower: mode is KvReadMode.Replica or KvReadMode.Session or KvReadMode.Stale, _run.NowUs);
        See(read.Etag);
        for (var i = 0; i < keys.Length; i++)
            _seen[keys[i]] = read.Found[i];
        if (_run.Healed)
            _modesRead.Add(mode);
    }

    // This caller is the only writer, one call at a time. So it reads the last acknowledged write, or a later one of unknown outcome.
    private async Task OfNeighbourAsync(NodeId node)
    {
        var (acknowledged, sent) = _ofNeighbours.GetValueOrDefault(node);
        var key = Encoding.UTF8.GetBytes($"n{node}/callers/{Number}");
        if (!_run.Healed && _run.Random.Next(2) == 0)
        {
            _ofNeighbours[node] = (acknowledged, ++sent);
            var (outcome, _) = await OutcomeAsync(PositionOfAsync(key, ClusterData.Value(sent))).ConfigureAwait(false);
            if (outcome == WriteOutcome.Applied)
                _ofNeighbours[node] = (sent, sent);
            return;
        }

        try
        {
            var value = ValueOf((await _client.GetAsync(key).ConfigureAwait(false)).Value);
            Violation.Unless(value >= acknowledged && value <= sent, Rule.Linearizable, $"caller {Number} reads {value} in the shard of node {node}, where it "
                + $"has written {sent} and been acknowledged {acknowledged}");
            if (_run.Healed)
                _nodesRead.Add(node);
        }
        catch (KvUnavailableException unavailable)
        {
            // Its node is down or cut off.
            _run.Trace($"caller {Number}: a read of the shard of node {node} fails: {unavailable.Message}");
        }
    }

    private async ValueTask<ShardPosition> PositionOfAsync(KvKey key, KvValue value) => (await _client.PutAsync(key, value).ConfigureAwait(false)).Position;

    private async ValueTask<ShardPosition> PositionOfAsync(KvWrite request) => (await _client.WriteAsync(request).ConfigureAwait(false)).Position;

    private static async ValueTask<(WriteOutcome Outcome, Etag Etag)> OutcomeAsync(ValueTask<ShardPosition> change)
    {
        try
        {
            return (WriteOutcome.Applied, (await change.ConfigureAwait(false)).Etag);
        }
        catch (KvConditionFailedException failed)
        {
            return (WriteOutcome.ConditionFailed, failed.Position.Etag);
        }
        catch (KvOutcomeUnknownException)
        {
            return (WriteOutcome.OutcomeUnknown, Etag.None);
        }
        catch (KvUnavailableException)
        {
            // Certainly not applied, and the history checks that.
            return (WriteOutcome.NotLeader, Etag.None);
        }
    }

    private static long ValueOf(ReadOnlyMemory<byte> value) => value.IsEmpty ? 0 : BinaryPrimitives.ReadInt64LittleEndian(value.Span);

    private void See(Etag etag) => _session = etag > _session ? etag : _session;
}
