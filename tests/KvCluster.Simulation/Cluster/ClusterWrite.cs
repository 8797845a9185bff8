namespace KvCluster.Simulation.Cluster;

/// <summary>A write as its caller knows it, over all its attempts.</summary>
/// <param name="Id">The value that it puts, and the name of a key of its own.</param>
/// <param name="Keys">Put together.</param>
/// <param name="Expected">The condition: the value of the first key, 0: it is absent; null: none.</param>
/// <param name="Floor">The greatest etag answered to anybody before the first attempt.</param>
/// <param name="Session">The session it is identified in; none: it is not, and is tried once.</param>
/// <param name="Sequence">Its number in the session.</param>
internal sealed record ClusterWrite(long Id, int[] Keys, long? Expected, Etag Floor, UInt128 Session, ulong Sequence)
{
    public bool IsIdentified => Sequence != 0;
}
