using KvCluster.V1;

namespace KvCluster.Client.Transport;

/// <summary>How one attempt at one node ended.</summary>
/// <param name="Reply">The node's reply; null: there was none.</param>
/// <param name="Sent">Without a reply: whether the request may have reached the node.</param>
/// <param name="Failure">Without a reply: why, in words for people.</param>
/// <param name="DeadlinePassed">Without a reply: the caller's time was up.</param>
internal readonly record struct CallAnswer(Reply? Reply, bool Sent, string? Failure, bool DeadlinePassed);
