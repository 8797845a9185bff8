namespace KvCluster.Client.Transport;

/// <summary>How the response of a read is sent. By default over the connection for all calls, with any size.</summary>
/// <param name="Lane">Over which connection.</param>
/// <param name="BytesMax">On <see cref="ReplyLane.Large"/>: the room that the caller keeps for the response. The node refuses a larger one with
/// REPLY_LARGE.</param>
/// <param name="Turn">On <see cref="ReplyLane.Large"/>: how often the read has been there before. Of reads at any replica, every other one goes to the
/// leader.</param>
/// <param name="PartBytesMax">For a GetMany on <see cref="ReplyLane.Large"/>: like <paramref name="BytesMax"/> for the part of each shard, by shard.</param>
internal readonly record struct ReplyWay(ReplyLane Lane, int BytesMax = 0, int Turn = 0, IReadOnlyDictionary<ShardId, int>? PartBytesMax = null)
{
    // Spare room, so that the read of a slowly growing value does not start again each time.
    private const int GrowthBytes = 1 << 10;

    // No response is nearly this large.
    private const int RoomBytesMax = 1 << 30;

    /// <summary>The room to keep for a response of this size. It is somewhat larger, because the value may have grown when it is read again.</summary>
    public static int RoomFor(long bytes) => (int)Math.Min(bytes + (bytes / 8) + GrowthBytes, RoomBytesMax);

    /// <summary>The room to keep for a response of several parts.</summary>
    public static int RoomFor(IEnumerable<int> partBytesMax) => (int)Math.Min(partBytesMax.Sum(static bytes => (long)bytes), RoomBytesMax);
}

/// <summary>Over which connection to a node a read is sent. Changes have small responses and use one connection only.</summary>
internal enum ReplyLane
{
    /// <summary>The connection for all calls, with a response of any size: used by a client.</summary>
    Any,

    /// <summary>
    /// The connection for all calls. The node refuses a response of more than <see cref="CallRouter.SmallReplyBytes"/> with REPLY_LARGE, so that others never
    /// wait behind it.
    /// </summary>
    Small,

    /// <summary>A second connection, where responses of any size delay only one another.</summary>
    Large,
}
