namespace KvCluster.Client.Transport;

/// <summary>Over which of the connections to a node a read goes. Changes have small responses, and one connection.</summary>
internal enum ReplyLane
{
    /// <summary>The one of all calls, whatever the response has: a client's own.</summary>
    Any,

    /// <summary>The same; a response of more than <see cref="CallRouter.SmallReplyBytes"/> is refused by the node as REPLY_LARGE, so that those of others never wait behind it.</summary>
    Small,

    /// <summary>A second one, where responses of any size wait for one another only.</summary>
    Large,
}
