using KvCluster.ClusterTests.History;

namespace KvCluster.ClusterTests.Faults;

/// <summary>
/// One cluster and its client processes for the tests of a class, one after the other, each with its own history. Starting them costs more than most
/// faults. The next test does not reuse the cluster of a failed test.
/// </summary>
public class SharedCluster : IAsyncLifetime
{
    private FaultCluster? _cluster;
    private Histories? _histories;
    private bool _isClean;

    /// <summary>Keys at which shards begin, separated by commas; "" means one shard.</summary>
    protected virtual string SplitAt => "";

    /// <summary>A working cluster, with every shard led by its preferred node, and clients that have begun to record.</summary>
    internal async Task<(FaultCluster Cluster, Histories Histories)> BeginAsync()
    {
        if (!_isClean)
        {
            await DisposeAsync();
            _cluster = await FaultCluster.StartAsync(splitAt: SplitAt);
            _histories = new Histories(_cluster.Folder, _cluster.Endpoints);
        }
        else
        {
            await _cluster!.UntilPlacedAsync();
            _histories!.Begin();
        }

        _isClean = false;
        return (_cluster, _histories!);
    }

    /// <summary>Ends the test's history with a transfer. The history must be linearizable, and all replicas equal.</summary>
    internal async Task EndAsync([System.Runtime.CompilerServices.CallerMemberName] string test = "")
    {
        await _cluster!.TransferAsync();
        await _histories!.MoreChangesNowAsync(50);
        await _histories.CheckAsync(test);
        await _cluster.UntilEqualAsync();
        _isClean = true;
    }

    public Task InitializeAsync() => Task.CompletedTask;

    public async Task DisposeAsync()
    {
        if (_histories is not null)
            await _histories.DisposeAsync();
        if (_cluster is not null)
            await _cluster.DisposeAsync();
        (_cluster, _histories) = (null, null);
    }
}
