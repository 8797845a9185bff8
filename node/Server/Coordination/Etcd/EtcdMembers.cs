namespace KvCluster.Node.Coordination.Etcd;

/// <summary>The members of etcd. One is used until a call to it fails, then the next. Thread-safe.</summary>
/// <param name="endpoints">The members, at least one.</param>
internal sealed class EtcdMembers(EtcdEndpoint[] endpoints) : IDisposable
{
    private int _current;
    private EtcdEndpoint? _answered;

    public int Count => endpoints.Length;

    /// <summary>The member to which the next call goes.</summary>
    public EtcdEndpoint Current => endpoints[Volatile.Read(ref _current)];

    /// <summary>A call to a member has failed. Moves on only from that one, so that many calls that fail together move on by one.</summary>
    public void MoveOn(EtcdEndpoint failed)
    {
        var index = Array.IndexOf(endpoints, failed);
        Interlocked.CompareExchange(ref _current, (index + 1) % endpoints.Length, index);
    }

    /// <summary>A member has answered. Returns the one that did so before; null if none has.</summary>
    public EtcdEndpoint? Answered(EtcdEndpoint endpoint) => Interlocked.Exchange(ref _answered, endpoint);

    public void Dispose()
    {
        foreach (var endpoint in endpoints)
            endpoint.Dispose();
    }
}
