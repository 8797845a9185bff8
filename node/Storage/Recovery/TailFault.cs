namespace KvCluster.Storage.Recovery;

/// <summary>How the last segment of the line ends.</summary>
internal enum TailFault
{
    /// <summary>Behind the last record lies nothing that was ever a record of this life.</summary>
    None,

    /// <summary>A record behind the end is torn, or sound but unchained; nothing shows that what is missing was durable.</summary>
    Torn,

    /// <summary>A later record shows that what is missing was durable.</summary>
    Lost,
}
