using KvCluster.V1;

namespace KvCluster.Client.Transport;

/// <summary>The result of one attempt at one node.</summary>
/// <param name="Reply">The node's reply; null if there was none.</param>
/// <param name="Sent">Without a reply: whether the request may have reached the node.</param>
/// <param name="Failure">Without a reply: the reason, in words.</param>
/// <param name="DeadlinePassed">Without a reply: whether the caller's deadline passed.</param>
internal readonly record struct CallAnswer(Reply? Reply, bool Sent, string? Failure, bool DeadlinePassed);
