namespace KvCluster.Simulation;

/// <summary>
/// How often each fault took effect and each rule was put to the test, in one run or in many. A fault that is drawn and meets a node that is down has not happened;
/// a rule that nothing was held to has not been kept. One run on one thread.
/// </summary>
internal sealed class Tally
{
    private readonly Dictionary<Enum, long> _counts = [];

    /// <summary>Of all of these a suite of all scenarios must have seen something. <see cref="Rule.Invariant"/> is held by the code itself, which does not count.</summary>
    public static IReadOnlyList<Enum> Expected { get; } =
    [
        .. Enum.GetValues<Protocol.Fault>().Cast<Enum>(),
        .. Enum.GetValues<Cluster.ClusterFault>().Cast<Enum>(),
        .. Enum.GetValues<Rule>().Except([Rule.Invariant]).Cast<Enum>(),
    ];

    /// <summary>A fault has taken effect.</summary>
    public void Count(Enum what) => Add(what, 1);

    /// <summary>So often something has happened.</summary>
    public void Add(Enum what, long times) => _counts[what] = this[what] + times;

    /// <summary>Adds what another one has counted.</summary>
    public void Add(Tally other)
    {
        foreach (var (what, times) in other._counts)
            Add(what, times);
    }

    /// <summary>What was expected and never happened.</summary>
    public IEnumerable<Enum> Missing => Expected.Where(what => this[what] == 0);

    public override string ToString() => string.Join(", ", Expected.Select(what => $"{NameOf(what)} {this[what]}"));

    /// <summary>As it stands in a report.</summary>
    public static string NameOf(Enum what) => what is Rule ? $"rule {what}" : what is Protocol.Fault ? $"protocol {what}" : $"nodes {what}";

    private long this[Enum what] => _counts.GetValueOrDefault(what);
}
