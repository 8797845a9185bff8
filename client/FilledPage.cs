using KvCluster.V1;

namespace KvCluster.Client;

/// <summary>
/// A page that is read from one shard after the other, because a node's page ends with its shard, until it is full or the range ends. Made by
/// <see cref="KvClient"/> for each call, and used by one thread at a time.
/// </summary>
internal sealed class FilledPage
{
    private readonly List<KvEntry> _entries = [];
    private readonly List<ShardPosition> _positions = [];

    /// <summary>A page without entries.</summary>
    /// <param name="request">What is asked for. It belongs to this object from now on.</param>
    public FilledPage(ListRequest request)
    {
        // As a node takes 0, and more than there may be.
        request.Limit = request.Limit == 0 ? KvLimits.ListEntriesDefault : request.Limit;
        request.BytesMax = request.BytesMax == 0 ? KvLimits.ListBytesDefault : Math.Min(request.BytesMax, KvLimits.ListBytesMax);
        Rest = request;
    }

    /// <summary>What is to be asked for next.</summary>
    public ListRequest Rest { get; }

    /// <summary>Adds what a node has answered. The page, if it is complete; null if the next shard is to be asked for more.</summary>
    public KvPage? Add(ListResponse response, ShardPosition position)
    {
        var entriesLeft = (long)Rest.Limit - response.Entries.Count;
        var bytesLeft = (long)Rest.BytesMax;
        foreach (var entry in response.Entries)
        {
            bytesLeft -= entry.Key.Length + entry.Value.Length;
            _entries.Add(entry.ToEntry());
        }
        _positions.Add(position);
        if (entriesLeft > 0 && bytesLeft > 0 && RouteKeys.IsAtBound(response.NextPageToken.Span))
        {
            (Rest.Limit, Rest.BytesMax, Rest.PageToken) = ((uint)entriesLeft, (uint)bytesLeft, response.NextPageToken);
            return null;
        }
        return new KvPage(_entries, PageToken.Of(response.NextPageToken.Span), position)
        {
            Positions = _positions,
            SnapshotKeptFor = response.HasSnapshotKeptMs ? TimeSpan.FromMilliseconds(response.SnapshotKeptMs) : null,
        };
    }
}
