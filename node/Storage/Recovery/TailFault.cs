namespace KvCluster.Storage.Recovery;

/// <summary>How the last segment of the line ends.</summary>
internal enum TailFault
{
    /// <summary>No record of this life was being written right behind the last; of two writes in flight the later may be there.</summary>
    None,

    /// <summary>A record behind the end is torn, or sound but unchained; nothing shows that what is missing was durable.</summary>
    Torn,

    /// <summary>A later record shows that what is missing was durable.</summary>
    Lost,

    /// <summary>Behind the end is something that the disk cannot read: a torn write leaves no such thing, so a record may be there that was whole.</summary>
    Unreadable,
}
