using KvCluster.Client;

namespace KvCluster.Extensions.Caching;

/// <summary>What a <see cref="LiveWatch"/> keeps like the cluster. Called by its loop only.</summary>
internal interface IWatched
{
    /// <summary>A key has changed, or is there when the watch begins.</summary>
    void Apply(KvEvent change);

    /// <summary>What is known of the keys of a range is not known any more.</summary>
    void Forget(KvRange range);
}
