namespace KvCluster.Simulation.Protocol;

/// <summary>What a client asks of a replica. The answer comes once, or never if the replica dies.</summary>
/// <param name="Keys">Written together, or read at one snapshot.</param>
/// <param name="WriteId">The value to put; 0: a read.</param>
/// <param name="Expected">A write's condition: the value of the first key.</param>
/// <param name="Quorum">A read that asks for a round, whatever the lease.</param>
/// <param name="Answer">Told once.</param>
internal sealed record SimulatedCall(int[] Keys, long WriteId, long? Expected, bool Quorum, Action<SimulatedAnswer> Answer);

/// <summary>How a call ended.</summary>
internal enum SimulatedOutcome
{
    Applied,
    Read,
    NotLeader,
    Unknown,
}

/// <summary>An answer. A failed condition is a read: <paramref name="Values"/> is what was found under the call's keys at <paramref name="Etag"/>.</summary>
internal readonly record struct SimulatedAnswer(SimulatedOutcome Outcome, Etag Etag, long[] Values)
{
    public static SimulatedAnswer Of(SimulatedOutcome outcome) => new(outcome, Etag.None, []);
}
