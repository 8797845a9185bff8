using System.Collections.Immutable;
using KvCluster.V1;

namespace KvCluster.Client.Sessions;

/// <summary>The positions of a watch by shard, from which its messages make their resume tokens. Used by the reader of one watch.</summary>
internal sealed class WatchPositions
{
    private ImmutableSortedDictionary<uint, Position> _positions;

    /// <param name="request">Has the positions that the watch goes on after.</param>
    public WatchPositions(WatchRequest request) =>
        _positions = request.After.ToImmutableSortedDictionary(static position => position.Shard, static position => position);

    /// <summary>Advances behind a message.</summary>
    /// <returns>The positions of all shards with it; null if some are not known yet.</returns>
    public ImmutableSortedDictionary<uint, Position>? Advance(WatchResponse message)
    {
        if (message.Position is not { } position)
            return null;
        _positions = _positions.SetItem(position.Shard, position);
        return message.MorePositions ? null : _positions;
    }
}
