using System.Globalization;
using KvCluster.Client;

namespace KvCluster.Cli.Doctor;

/// <summary>What nodes say of themselves, judged: each check is a finding, also where nothing is wrong.</summary>
/// <param name="asked">The clock of the machine that asks, before it asked.</param>
/// <param name="now">The same when all had answered.</param>
internal sealed class Diagnosis(ClusterStatus status, IReadOnlyList<NodeExamination> nodes, DateTimeOffset asked, DateTimeOffset now)
{
    // What an operator of a database on this kind of hardware would be woken for, or would plan for.
    private static readonly TimeSpan ClocksApartWarning = TimeSpan.FromMilliseconds(500);
    private static readonly TimeSpan ClocksApartProblem = TimeSpan.FromSeconds(5);
    private static readonly TimeSpan SyncWarning = TimeSpan.FromMilliseconds(20);
    private static readonly TimeSpan SyncProblem = TimeSpan.FromMilliseconds(250);
    private static readonly TimeSpan CoordinatorWarning = TimeSpan.FromMilliseconds(200);
    private static readonly TimeSpan CertificateWarning = TimeSpan.FromDays(30);
    private static readonly TimeSpan CertificateProblem = TimeSpan.FromDays(3);
    private static readonly TimeSpan StallWarning = TimeSpan.FromHours(1);
    private static readonly TimeSpan StallProblem = TimeSpan.FromMilliseconds(600);
    private const ulong OpenFilesLeast = 16_384;
    private const ulong FreeBytesProblem = 1UL << 30;

    private readonly IReadOnlyList<NodeExamination> _answered = [.. nodes.Where(node => node.Error.Length == 0)];

    /// <summary>All of them, in the order of the checks.</summary>
    public IReadOnlyList<Finding> Findings() =>
    [
        .. Nodes(), .. Shards(), .. Versions(), .. Clocks(),
        .. _answered.SelectMany(node => (IEnumerable<Finding>)[Disk(node), Room(node), Coordinator(node), OpenFiles(node), Stalls(node), .. Certificate(node)]),
    ];

    private IEnumerable<Finding> Nodes() => nodes.Select(node => node.Error.Length == 0
        ? new Finding(Severity.Ok, $"node {node.Node}", $"answers at {node.Address}")
        : new Finding(Severity.Problem, $"node {node.Node}", $"does not answer at {node.Address}: {node.Error}",
            "Look at its log's last lines and at `kv-node health` there; start it, or take it out of the cluster with `kv admin replace`."));

    private IEnumerable<Finding> Shards()
    {
        var replicas = status.Nodes.SelectMany(node => node.Replicas.Select(replica => (node.Node, Replica: replica))).ToLookup(one => one.Replica.Shard);
        foreach (var shard in replicas.OrderBy(shard => shard.Key))
        {
            if (shard.All(one => one.Replica.Role != "leader"))
                yield return new Finding(Severity.Problem, $"shard {shard.Key}", "has no leader: it takes no reads and no writes",
                    "A majority of its nodes must run, reach one another and reach the coordinator.");
            foreach (var (node, replica) in shard.Where(one => one.Replica.Failure.Length > 0))
                yield return new Finding(Severity.Problem, $"shard {shard.Key}", $"its replica on node {node} does not work: {replica.Failure}",
                    $"What is lost is rebuilt by itself while a majority works; otherwise `kv admin replace {shard.Key} --from {node}`.");
        }
        if (replicas.Count > 0 && replicas.All(shard => shard.Any(one => one.Replica.Role == "leader") && shard.All(one => one.Replica.Failure.Length == 0)))
            yield return new Finding(Severity.Ok, "shards", $"{replicas.Count}, each with a leader");
    }

    private IEnumerable<Finding> Versions()
    {
        var versions = _answered.GroupBy(node => node.Version).ToList();
        if (versions.Count == 1)
            yield return new Finding(Severity.Ok, "versions", $"all nodes are of {versions[0].Key}");
        else if (versions.Count > 1)
            yield return new Finding(Severity.Warning, "versions", string.Join("; ", versions.Select(version => $"{version.Key}: {NodesOf(version)}")), "Finish the upgrade, or undo it.");
    }

    private IEnumerable<Finding> Clocks()
    {
        if (_answered.Count == 0)
            yield break;
        var (first, last) = (_answered.MinBy(node => node.Clock)!, _answered.MaxBy(node => node.Clock)!);
        yield return Clock(last.Clock - first.Clock, $"node {first.Node} and node {last.Node}");
        var farthest = _answered.MaxBy(OffHere)!;
        yield return Clock(OffHere(farthest), $"node {farthest.Node} and this machine");
    }

    // A node read its clock at some moment between question and answer.
    private TimeSpan OffHere(NodeExamination node) => node.Clock < asked ? asked - node.Clock : node.Clock > now ? node.Clock - now : TimeSpan.Zero;

    private static Finding Clock(TimeSpan apart, string who) => apart < ClocksApartWarning
        ? new Finding(Severity.Ok, "clocks", $"{who} are at most {Milliseconds(apart)} apart")
        : new Finding(apart < ClocksApartProblem ? Severity.Warning : Severity.Problem, "clocks", $"{who} are {Milliseconds(apart)} apart",
            "Have chrony or systemd-timesyncd run on each machine. Data are not in danger; certificates, logs and the age of sessions go by these clocks.");

    private static Finding Disk(NodeExamination node) => node switch
    {
        { DiskError.Length: > 0 } => new Finding(Severity.Problem, $"disk of node {node.Node}", $"could not be measured: {node.DiskError}", "See whether the volume is there, has room and may be written."),
        _ when node.SyncMedian < SyncWarning => new Finding(Severity.Ok, $"disk of node {node.Node}", SyncText(node)),
        _ => new Finding(node.SyncMedian < SyncProblem ? Severity.Warning : Severity.Problem, $"disk of node {node.Node}", SyncText(node),
            "Every write waits for a majority's disks: use local SSDs with a cache that survives a power cut, and leave the disk to the node."),
    };

    private static string SyncText(NodeExamination node) => $"4 KiB are on stable storage within {Milliseconds(node.SyncMedian)}, at most {Milliseconds(node.SyncLongest)}";

    private static Finding Room(NodeExamination node)
    {
        var text = $"{node.DiskFreeBytes / 1e9:N1} of {node.DiskBytes / 1e9:N1} GB are free";
        return node.DiskFreeBytes < FreeBytesProblem
            ? new Finding(Severity.Problem, $"room of node {node.Node}", text, "Puts are refused when nothing is left; deletes go through. Give the volume more room.")
            : node.DiskFreeBytes < node.DiskBytes / 10
                ? new Finding(Severity.Warning, $"room of node {node.Node}", text, "Give the volume more room before puts are refused.")
                : new Finding(Severity.Ok, $"room of node {node.Node}", text);
    }

    private static Finding Coordinator(NodeExamination node) => node switch
    {
        { CoordinatorError.Length: > 0 } => new Finding(Severity.Problem, "coordinator", $"gives node {node.Node} no answer: {node.CoordinatorError}",
            "Shards that have a leader go on; failover waits. See `etcdctl endpoint health --cluster`, the network between, and user and password."),
        _ when node.CoordinatorTime < CoordinatorWarning => new Finding(Severity.Ok, "coordinator", $"answers node {node.Node} within {Milliseconds(node.CoordinatorTime)}"),
        _ => new Finding(Severity.Warning, "coordinator", $"answers node {node.Node} within {Milliseconds(node.CoordinatorTime)}",
            "Failover takes some of its answers: give etcd a fast disk of its own (`etcdctl check perf`)."),
    };

    private static Finding OpenFiles(NodeExamination node)
    {
        var text = node.OpenFilesMax == 0 ? "are not known there" : string.Create(CultureInfo.InvariantCulture, $"{node.OpenFiles} of {node.OpenFilesMax}");
        var subject = $"open files of node {node.Node}";
        return node.OpenFilesMax > 0 && node.OpenFiles > node.OpenFilesMax / 5 * 4
            ? new Finding(Severity.Problem, subject, text, "The node cannot open more soon: raise the limit (LimitNOFILE of the unit, ulimits of the container) and start it again.")
            : node.OpenFilesMax is > 0 and < OpenFilesLeast
                ? new Finding(Severity.Warning, subject, text, $"Raise the limit to at least {OpenFilesLeast} (LimitNOFILE of the unit, ulimits of the container).")
                : new Finding(Severity.Ok, subject, text);
    }

    private Finding Stalls(NodeExamination node)
    {
        var subject = $"stalls of node {node.Node}";
        if (node.StallEnd is not { } end)
            return new Finding(Severity.Ok, subject, "none of 250 ms or more since it started");
        var text = string.Create(CultureInfo.InvariantCulture, $"{node.Stalls} since it started, the last one {Math.Max(0, (now - end).TotalMinutes):N0} minutes ago: {node.StallText}");
        return now - end > StallWarning
            ? new Finding(Severity.Ok, subject, text)
            : new Finding(node.StallLength < StallProblem ? Severity.Warning : Severity.Problem, subject, text,
                "Followers elect another leader after 0.6 s without one. Give the node processors of its own (no processor), memory for its data (page faults, collections), and look at its log.");
    }

    private IEnumerable<Finding> Certificate(NodeExamination node)
    {
        var subject = $"certificate of node {node.Node}";
        if (node.CertificateError.Length > 0)
            yield return new Finding(Severity.Problem, subject, $"what is in its files is not used: {node.CertificateError}", "Put certificates that fit into the files; the node takes them within seconds.");
        if (node.CertificateEnd is not { } end)
            yield break;
        var left = end - now;
        var text = left > TimeSpan.Zero ? $"{node.CertificateFile} ends in {left.TotalDays:N1} days, {end:u}" : $"{node.CertificateFile} has ended, {end:u}";
        yield return left > CertificateWarning
            ? new Finding(Severity.Ok, subject, text)
            : new Finding(left > CertificateProblem ? Severity.Warning : Severity.Problem, subject, text, "Put new certificates into the same files; nodes take them within seconds, without a restart.");
    }

    private static string NodesOf(IEnumerable<NodeExamination> those) => "node " + string.Join(", ", those.Select(node => node.Node));

    private static string Milliseconds(TimeSpan time) => string.Create(CultureInfo.InvariantCulture, $"{time.TotalMilliseconds:N1} ms");
}
