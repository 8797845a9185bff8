namespace KvCluster.ContainerTests;

/// <summary>
/// One cluster for the tests of a class, one after the other, because starting it costs more than most of them. The next test does not reuse the cluster of a
/// failed test.
/// </summary>
public sealed class SharedContainers : IAsyncLifetime
{
    private ContainerCluster? _cluster;
    private bool _isClean;

    /// <summary>A cluster that serves.</summary>
    internal async Task<ContainerCluster> BeginAsync()
    {
        if (!_isClean)
        {
            await DisposeAsync();
            _cluster = new ContainerCluster();
            await _cluster.StartAsync();
        }

        _isClean = false;
        await _cluster!.UntilServingAsync();
        return _cluster;
    }

    /// <summary>The test has passed and left the cluster whole.</summary>
    internal void End() => _isClean = true;

    /// <summary>What the containers have said last, for the output of a failed test.</summary>
    internal Task<IReadOnlyList<string>> LastLinesAsync() => _cluster?.LastLinesAsync() ?? Task.FromResult<IReadOnlyList<string>>([]);

    public Task InitializeAsync() => Task.CompletedTask;

    public async Task DisposeAsync()
    {
        if (_cluster is not null)
            await _cluster.DisposeAsync();
        _cluster = null;
    }
}
