namespace KvCluster.Client.Transport;

/// <summary>Where an attempt of a call, or a stream, is sent; or why it cannot be sent anywhere now.</summary>
/// <param name="Address">Null if no address can be used for the moment.</param>
/// <param name="Failure">Without an address: the reason, for an error message.</param>
internal readonly record struct Destination(string? Address, string? Failure)
{
    /// <summary>The generation of the route by which the address was chosen; 0 if it was chosen without one.</summary>
    public ulong Generation { get; init; }

    /// <summary>Every address is unusable for the moment, and this is one whose connection is still being made. The call waits for it.</summary>
    public bool IsSlow { get; init; }
}
