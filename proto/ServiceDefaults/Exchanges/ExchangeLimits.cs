namespace KvCluster.ServiceDefaults.Exchanges;

/// <summary>The bounds of one exchange, the same at a node and at a router, so that neither takes on what the other refuses.</summary>
internal static class ExchangeLimits
{
    /// <summary>
    /// The maximum number of unanswered calls: a quarter of a shard's queue, so that one stream cannot fill it. A call whose shard has its share of them is
    /// refused as busy. Reading continues, because otherwise the changes of one blocked shard would delay the reads of all.
    /// </summary>
    public const int CallsMax = 4_096;

    /// <summary>A message takes no further reply beyond this size in bytes, which is gRPC's default limit. A single reply may be larger.</summary>
    public const int MessageBytesMax = 4 << 20;

    /// <summary>While this many bytes of replies are not written, no further call is started: one message being written and one being collected.</summary>
    public const int WaitingBytesMax = 2 * MessageBytesMax;

    /// <summary>Bound for the bytes of replies to reads that were already started. Replies beyond it are refused. Two of the largest fit.</summary>
    public const int ReplyBytesMax = 32 << 20;

    /// <summary>Errors and answers to changes, which are never refused, are smaller than this, in bytes.</summary>
    public const int OutcomeBytesMax = 4 << 10;
}
