namespace KvCluster.Simulation;

/// <summary>
/// How often each fault took effect and each rule was tested, in one run or in many. A fault that meets a node that is down does not count, and a
/// rule that nothing was checked against was not tested. One run on one thread.
/// </summary>
internal sealed class Tally
{
    private readonly Dictionary<Enum, long> _counts = [];

    /// <summary>
    /// A suite of all scenarios must have seen all of these. <see cref="Rule.Invariant"/> is checked by the code itself, which does not count.
    /// </summary>
    public static IReadOnlyList<Enum> Expected { get; } =
    [
        .. Enum.GetValues<Protocol.Fault>().Cast<Enum>(),
        .. Enum.GetValues<Cluster.ClusterFault>().Cast<Enum>(),
        .. Enum.GetValues<Rule>().Except([Rule.Invariant]).Cast<Enum>(),
    ];

    /// <summary>A fault has taken effect.</summary>
    public void Count(Enum what) => Add(what, 1);

    /// <summary>Something has happened this many times.</summary>
    public void Add(Enum what, long times) => _counts[what] = this[what] + times;

    /// <summary>Adds the counts of another tally.</summary>
    public void Add(Tally other)
    {
        foreach (var (what, times) in other._counts)
            Add(what, times);
    }

    /// <summary>What was expected and never happened.</summary>
    public IEnumerable<Enum> Missing => Expected.Where(what => this[what] == 0);

    public override string ToString() => string.Join(", ", Expected.Select(what => $"{NameOf(what)} {this[what]}"));

    /// <summary>The name in a report.</summary>
    public static string NameOf(Enum what) => what is Rule ? $"rule {what}" : what is Protocol.Fault ? $"protocol {what}" : $"nodes {what}";

    private long this[Enum what] => _counts.GetValueOrDefault(what);
}
