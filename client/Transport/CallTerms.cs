namespace KvCluster.Client.Transport;

/// <summary>What a call is given.</summary>
/// <param name="DeadlineMs">When it gives up, by the clock of the router.</param>
/// <param name="NoRetry">No attempt is repeated, except at the node that a redirection names.</param>
/// <param name="HedgeAfter">When a read that any replica may serve is sent to another one as well; null: never.</param>
internal readonly record struct CallTerms(long DeadlineMs, bool NoRetry = false, TimeSpan? HedgeAfter = null);
