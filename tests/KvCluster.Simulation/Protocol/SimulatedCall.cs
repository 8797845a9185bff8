namespace KvCluster.Simulation.Protocol;

/// <summary>A client's request to a replica. It is answered once, or never if the replica dies.</summary>
/// <param name="Keys">Written together, or read at one snapshot.</param>
/// <param name="WriteId">The value to put, or 0 for a read.</param>
/// <param name="Expected">A write's condition: the value of the first key.</param>
/// <param name="Quorum">Whether a read requires a round in spite of a lease.</param>
/// <param name="Answer">Called once.</param>
internal sealed record SimulatedCall(int[] Keys, long WriteId, long? Expected, bool Quorum, Action<SimulatedAnswer> Answer);

/// <summary>How a call ended.</summary>
internal enum SimulatedOutcome
{
    Applied,
    Read,
    NotLeader,
    Unknown,
}

/// <summary>An answer. A failed condition is a read: <paramref name="Values"/> are the values of the call's keys at <paramref name="Etag"/>.</summary>
internal readonly record struct SimulatedAnswer(SimulatedOutcome Outcome, Etag Etag, long[] Values)
{
    public static SimulatedAnswer Of(SimulatedOutcome outcome) => new(outcome, Etag.None, []);
}
