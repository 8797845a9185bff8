using KvCluster.Internal.V1;

namespace KvCluster.Replication.Protocol;

/// <summary>
/// Orders copies of the shard's record. The number of recoveries comes first, because revisions of a coordinator whose records were rebuilt say nothing of
/// those of the one before.
/// </summary>
/// <param name="Recovery">How often the records were rebuilt from the nodes.</param>
/// <param name="Revision">The record's mod revision.</param>
internal readonly record struct RecordVersion(ulong Recovery, long Revision) : IComparable<RecordVersion>
{
    /// <summary>The version of a copy.</summary>
    public static RecordVersion Of(ShardRecord record, long revision) => new(record.Recovery, revision);

    /// <summary>The version of the copy that a replica has seen last.</summary>
    public static RecordVersion Of(HardState state) => new(state.Recovery, state.CoordinatorRevision);

    public static RecordVersion Max(RecordVersion one, RecordVersion other) => one < other ? other : one;

    public int CompareTo(RecordVersion other) => Recovery != other.Recovery ? Recovery.CompareTo(other.Recovery) : Revision.CompareTo(other.Revision);

    public static bool operator <(RecordVersion left, RecordVersion right) => left.CompareTo(right) < 0;

    public static bool operator >(RecordVersion left, RecordVersion right) => left.CompareTo(right) > 0;

    public static bool operator <=(RecordVersion left, RecordVersion right) => left.CompareTo(right) <= 0;

    public static bool operator >=(RecordVersion left, RecordVersion right) => left.CompareTo(right) >= 0;

    /// <summary>For people: the revision, and the number of recoveries if there was one.</summary>
    public override string ToString() => Recovery == 0 ? $"{Revision}" : $"{Revision} of recovery {Recovery}";
}
