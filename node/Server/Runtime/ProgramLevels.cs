using KvCluster.V1;

namespace KvCluster.Node.Runtime;

/// <summary>
/// The versions of formats that a program supports, as ranges (cluster.proto, NodeLevels), and their comparison with those in force in a cluster. A later
/// version supports the level before its own too, so that the nodes of a cluster can be replaced one by one before its level is raised.
/// </summary>
/// <param name="Format">Of records in the coordinator, data directories and messages between nodes.</param>
/// <param name="Contract">Of the calls of clients and operators.</param>
internal sealed record ProgramLevels((uint Min, uint Max) Format, (uint Min, uint Max) Contract)
{
    /// <summary>What this program supports. A new cluster has the greatest levels of the program that creates it.</summary>
    public static readonly ProgramLevels Current = new((1, 6), (1, 1));

    /// <summary>The format level from which on records have a shard time beside their wall time, and what is left of sessions' lifetimes.</summary>
    public const uint FormatOfShardTimes = 2;

    /// <summary>
    /// The format level from which on the coordinator's records may have been rebuilt from the nodes. A program without it would drop what a recovery has put
    /// into a shard's record when it changes that record. So a recovery puts this level in force, whichever was before: all nodes that take part support it.
    /// </summary>
    public const uint FormatOfRecoveries = 3;

    /// <summary>The format level from which on data files have values that are divided between a leaf and a run of whole pages.</summary>
    public const uint FormatOfDividedValues = 4;

    /// <summary>The format level from which on data files may have compressed values.</summary>
    public const uint FormatOfCompressedValues = 5;

    /// <summary>The format level from which on a node's replicas may have a shared journal.</summary>
    public const uint FormatOfSharedJournals = 6;

    /// <summary>As nodes announce it.</summary>
    public NodeLevels ToMessage() => new()
    {
        Format = new LevelRange { Min = Format.Min, Max = Format.Max },
        Contract = new LevelRange { Min = Contract.Min, Max = Contract.Max },
    };

    /// <summary>Why a program with these levels cannot be a part of a cluster; null if it can.</summary>
    /// <param name="format">The cluster's format level in force.</param>
    /// <param name="contract">The cluster's contract level in force.</param>
    public string? WhyNot(uint format, uint contract) => WhyNot("format", Format, format) ?? WhyNot("contract", Contract, contract);

    /// <summary>The levels that another node announced. A range that is absent includes nothing.</summary>
    public static ProgramLevels Read(NodeLevels? levels) => new(Read(levels?.Format), Read(levels?.Contract));

    private static (uint Min, uint Max) Read(LevelRange? range) => range is null ? (1, 0) : (range.Min, range.Max);

    private static string? WhyNot(string kind, (uint Min, uint Max) supported, uint level) => level >= supported.Min && level <= supported.Max ? null
        : $"the cluster has {kind} level {level}, but " + (supported.Min > supported.Max ? "no level is supported"
            : supported.Min == supported.Max ? $"only level {supported.Min} is supported"
            : $"only the levels {supported.Min} to {supported.Max} are supported");
}
