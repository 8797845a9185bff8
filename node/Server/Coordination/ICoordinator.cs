namespace KvCluster.Node.Coordination;

/// <summary>
/// A small versioned store in which every change has a greater revision than the one before. Keys are text, values protobuf JSON. Two
/// implementations: in this process over a file, and over etcd's API. Thread-safe.
/// </summary>
internal interface ICoordinator : IAsyncDisposable
{
    /// <summary>What changes are guarded by that name no guard; null: nothing.</summary>
    CoordinatorGuard? Guard => null;

    /// <summary>The newest value of a key. Linearizable.</summary>
    /// <exception cref="CoordinatorUnavailableException">No answer.</exception>
    Task<CoordinatorRead> GetAsync(string key, CancellationToken cancellationToken);

    /// <summary>All keys with a prefix, in order, at one revision. Linearizable.</summary>
    /// <exception cref="CoordinatorUnavailableException">No answer.</exception>
    Task<CoordinatorList> ListAsync(string prefix, CancellationToken cancellationToken);

    /// <summary>
    /// Puts a value (null: deletes) if the key's mod revision is still <paramref name="expectedRevision"/>; 0: if it is absent. Makes one attempt. If its
    /// outcome is unknown, the result says so, and <see cref="CoordinatorChanges"/> can settle it.
    /// </summary>
    /// <param name="lease">The lease whose end removes the key; 0: none.</param>
    /// <param name="guardedBy">Is compared in the same transaction; null: nothing.</param>
    /// <exception cref="CoordinatorGuardException">The guard does not hold. Nothing was changed.</exception>
    Task<CompareAndSetResult> CompareAndSetAsync(
        string key, long expectedRevision, string? value, long lease, CoordinatorGuard? guardedBy, CancellationToken cancellationToken);

    /// <summary>
    /// The changes of keys with a prefix from a revision on, in order, each revision complete. Ends only with an exception. The caller must then list, and
    /// watch from the list's revision + 1.
    /// </summary>
    /// <exception cref="CoordinatorCompactedException">Changes from that revision on are no longer kept.</exception>
    /// <exception cref="CoordinatorUnavailableException">The watch broke.</exception>
    IAsyncEnumerable<IReadOnlyList<CoordinatorChange>> WatchAsync(string prefix, long fromRevision, CancellationToken cancellationToken);

    /// <summary>Grants a lease that ends, with its keys, unless it is kept alive within the time.</summary>
    /// <exception cref="CoordinatorUnavailableException">No answer.</exception>
    Task<long> GrantLeaseAsync(TimeSpan timeToLive, CancellationToken cancellationToken);

    /// <summary>Restarts a lease's time. False if it has ended.</summary>
    /// <exception cref="CoordinatorUnavailableException">No answer.</exception>
    Task<bool> KeepAliveAsync(long lease, CancellationToken cancellationToken);

    /// <summary>Ends a lease and removes its keys. Does nothing if it has already ended.</summary>
    /// <exception cref="CoordinatorUnavailableException">No answer.</exception>
    Task RevokeAsync(long lease, CancellationToken cancellationToken);

    /// <summary>
    /// Access to the same store that compares its answers with none from before, for finding out what it is after an alarm. Disposed by the caller.
    /// </summary>
    ICoordinator Anew();

    /// <summary>From now on answers are compared with those to <paramref name="anew"/>, which <see cref="Anew"/> returned. That ends an alarm.</summary>
    void ContinueAs(ICoordinator anew);
}
