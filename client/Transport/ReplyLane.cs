namespace KvCluster.Client.Transport;

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
