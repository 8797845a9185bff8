namespace KvCluster.Client;

/// <summary>
/// Tells the failures of calls that repetition does not heal from those of a cluster that is away. A recipe that goes on by itself ends with the former. Pure;
/// any thread.
/// </summary>
internal static class LastingFailures
{
    /// <summary>
    /// The last three have no reason from the cluster: they are the codes of what stands before it and refuses the credentials, or is no gRPC server.
    /// </summary>
    private static readonly string[] Reasons =
    [
        KvReasons.EndpointUnusable, KvReasons.ForeignCluster, KvReasons.NotServedHere, KvReasons.TlsFileUnusable, KvReasons.UnsupportedByPeer,
        "UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED",
    ];

    /// <summary>Whether the same call fails again, until somebody corrects the program, its settings or the addresses.</summary>
    public static bool IsLasting(this KvException failure) => failure is KvInvalidRequestException || Reasons.Contains(failure.Reason);
}
