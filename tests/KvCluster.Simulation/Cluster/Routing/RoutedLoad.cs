using System.Text;
using KvCluster.Client;
using KvCluster.Client.Runtime;

namespace KvCluster.Simulation.Cluster.Routing;

/// <summary>
/// A process that loads keys with the real <see cref="KvBulkLoad"/>, and another one that puts the same keys beside it. Calls are short and connections
/// break, so that answers are lost for longer than a call takes, and batches are sent again by later calls, also at the next leader. At the end each value is
/// in the committed records once if it was acknowledged, and at most once in any case: a batch that is written again after somebody else's put would be there
/// twice.
/// </summary>
internal sealed class RoutedLoad : IDisposable
{
    private const int Keys = 4;
    private const long RestUs = 60_000;
    private const long BreakRestUs = 400_000;
    private static readonly TimeSpan LoaderTimeout = TimeSpan.FromMilliseconds(150);
    private static readonly TimeSpan OtherTimeout = TimeSpan.FromMilliseconds(1_500);
    private static readonly TimeSpan GiveUpAfter = TimeSpan.FromSeconds(6);

    private readonly ClusterRun _run;
    private readonly RoutedNetwork _loaderNetwork;
    private readonly RoutedNetwork _otherNetwork;
    private readonly KvClient _loader;
    private readonly KvClient _other;
    private readonly int _thread = Environment.CurrentManagedThreadId;
    private readonly Dictionary<long, (int Key, bool IsAcknowledged)> _written = [];
    private KvBulkLoad _load;
    private long _values;

    public RoutedLoad(ClusterRun run)
    {
        _run = run;
        (_loaderNetwork, _otherNetwork) = (new RoutedNetwork(run), new RoutedNetwork(run));
        (_loader, _other) = (ClientOf(_loaderNetwork, LoaderTimeout), ClientOf(_otherNetwork, OtherTimeout));
        _load = _loader.BulkLoad(GiveUpAfter);
    }

    public void Start()
    {
        _run.Time.After(_run.Random.NextInt64(RestUs), () => Repeat(LoadAsync));
        _run.Time.After(_run.Random.NextInt64(RestUs), () => Repeat(PutAsync));
        _run.Time.After(_run.Random.NextInt64(BreakRestUs), BreakStreams);
    }

    /// <summary>A node's knowledge of the map has changed.</summary>
    public void MapChanged(NodeId node)
    {
        _loaderNetwork.MapChanged(node);
        _otherNetwork.MapChanged(node);
    }

    /// <summary>A node's process has ended.</summary>
    public void Ended(NodeId node)
    {
        _loaderNetwork.Ended(node);
        _otherNetwork.Ended(node);
    }

    /// <summary>Compares what it was told with the committed records.</summary>
    public void Check(CommittedLog log)
    {
        foreach (var (value, (key, isAcknowledged)) in _written)
        {
            var committed = log.VersionsOf(NameOf(key)).Count(version => version.Exists && ClusterData.WriteOf(version.Value) == value);
            Violation.Unless(
                committed == 1 || (committed == 0 && !isAcknowledged), Rule.AppliedOnce,
                $"value {value} of {NameOf(key)}, which a load or the writer beside it has put{(isAcknowledged ? " and was acknowledged" : "")}, is in "
                + $"{committed} committed changes");
        }
    }

    // The loads need no end of their own: nothing of them is under way any more when the run is over.
    public void Dispose()
    {
        _loader.DisposeAsync().AsTask().Wait();
        _other.DisposeAsync().AsTask().Wait();
    }

    private static string NameOf(int key) => $"load{key}";

    private KvClient ClientOf(RoutedNetwork network, TimeSpan timeout) => new(
        new KvClientOptions { Endpoints = [RoutedNetwork.AddressOf(new(1)), RoutedNetwork.AddressOf(new(2))], Timeout = timeout },
        network,
        new ClientRuntime(_run.Time, _run.Random.NextDouble, TaskCreationOptions.None));

    private void Repeat(Func<Task> call)
    {
        if (!_run.Healed)
            _ = RepeatAsync(call);
    }

    private async Task RepeatAsync(Func<Task> call)
    {
        try
        {
            await call().ConfigureAwait(false);
            Violation.Unless(Environment.CurrentManagedThreadId == _thread, Rule.Contract, "a load goes on on another thread");
            _run.Time.After(_run.Random.NextInt64(RestUs), () => Repeat(call));
        }
        catch (Exception broken)
        {
            _run.Throw(broken);
        }
    }

    // Requests that were sent arrive, and their answers do not.
    private void BreakStreams()
    {
        if (_run.Healed)
            return;
        _loaderNetwork.BreakAll();
        _run.Time.After(_run.Random.NextInt64(BreakRestUs), BreakStreams);
    }

    private async Task LoadAsync()
    {
        var keys = Enumerable.Range(0, Keys).Where(_ => _run.Random.Next(2) == 0).ToList();
        var values = keys.ConvertAll(Begin);
        try
        {
            for (var entry = 0; entry < keys.Count; entry++)
                await _load.AddAsync(Encoding.ASCII.GetBytes(NameOf(keys[entry])), ClusterData.Value(values[entry])).ConfigureAwait(false);
            await _load.FlushAsync().ConfigureAwait(false);
            values.ForEach(Acknowledge);
        }
        catch (KvException failure)
        {
            _run.Trace($"a load of the values {string.Join(' ', values)} fails: {failure.Message}");
            _load = _loader.BulkLoad(GiveUpAfter);
        }
    }

    private async Task PutAsync()
    {
        var key = _run.Random.Next(Keys);
        var value = Begin(key);
        try
        {
            await _other.PutAsync(Encoding.ASCII.GetBytes(NameOf(key)), ClusterData.Value(value)).ConfigureAwait(false);
            Acknowledge(value);
        }
        catch (KvException failure)
        {
            _run.Trace($"a put of value {value} beside a load fails: {failure.Message}");
        }
    }

    private long Begin(int key)
    {
        _written.Add(++_values, (key, false));
        return _values;
    }

    private void Acknowledge(long value) => _written[value] = (_written[value].Key, true);
}
