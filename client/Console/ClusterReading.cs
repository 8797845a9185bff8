using KvCluster.Client;
using KvCluster.V1;

namespace KvCluster.AdminConsole;

/// <summary>The status of all nodes, requested at a limited rate however many pages are open. Any thread.</summary>
/// <param name="client">Asks the nodes.</param>
/// <param name="request">What to ask for.</param>
/// <param name="ageMax">For how long an answer is used.</param>
internal sealed class ClusterReading(KvClient client, GetStatusRequest request, TimeSpan ageMax)
{

    /// <summary>A node that has not answered by then is shown as not answering.</summary>
    private static readonly TimeSpan NodeLimit = TimeSpan.FromSeconds(2);

    private readonly Lock _gate = new();
    private Task<(GetStatusResponse Status, DateTimeOffset At)>? _last;
    private long _lastBegan;

    /// <summary>The status, and when it was read.</summary>
    /// <param name="cancellationToken">Stops waiting; others that wait for the same reading are unaffected.</param>
    /// <exception cref="KvException">No node answers, so the shard map is not known.</exception>
    public Task<(GetStatusResponse Status, DateTimeOffset At)> ReadAsync(CancellationToken cancellationToken)
    {
        lock (_gate)
        {
            if (_last is null || (_last.IsCompleted && (_last.IsFaulted || TimeProvider.System.GetElapsedTime(_lastBegan) > ageMax)))
            {
                _lastBegan = TimeProvider.System.GetTimestamp();
                _last = AskAsync();
            }
            return _last.WaitAsync(cancellationToken);
        }
    }

    private async Task<(GetStatusResponse Status, DateTimeOffset At)> AskAsync() =>
        (await client.Admin.GetStatusAsync(request, NodeLimit, CancellationToken.None).ConfigureAwait(false), TimeProvider.System.GetUtcNow());
}
