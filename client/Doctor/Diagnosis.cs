// The findings of kv doctor and of the console, which are therefore the same. Any thread; it holds only what it was given.
using System.Globalization;

namespace KvCluster.Client.Doctor;

/// <summary>Judges what nodes report about themselves. Each check is a finding, even if nothing is wrong.</summary>
/// <param name="asked">This machine's clock before it asked the nodes.</param>
/// <param name="now">This machine's clock when all had answered.</param>
internal sealed class Diagnosis(ClusterStatus status, IReadOnlyList<NodeExamination> nodes, DateTimeOffset asked, DateTimeOffset now)
{
    // A problem is worth waking an operator for; a warning is worth planning for.
    private static readonly TimeSpan ClocksApartWarning = TimeSpan.FromMilliseconds(500);
    private static readonly TimeSpan ClocksApartProblem = TimeSpan.FromSeconds(5);
    private static readonly TimeSpan SyncWarning = TimeSpan.FromMilliseconds(20);
    private static readonly TimeSpan SyncProblem = TimeSpan.FromMilliseconds(250);
    private static readonly TimeSpan CoordinatorWarning = TimeSpan.FromMilliseconds(200);
    private static readonly TimeSpan CertificateWarning = TimeSpan.FromDays(30);
    private static readonly TimeSpan CertificateProblem = TimeSpan.FromDays(3);
    private static readonly TimeSpan StallWarning = TimeSpan.FromHours(1);
    private static readonly TimeSpan StallProblem = TimeSpan.FromMilliseconds(600);
    private const ulong OpenFilesMin = 16_384;
    private const ulong FreeBytesProblem = 1UL << 30;
    private const string Recover = "`kv admin coordinator recover --plan`, then without `--plan`. Start no node with an empty data directory before.";
    private const string MakeRoom =
        "Free space or enlarge the volume, in Kubernetes with deploy/kubernetes/grow-storage. The node notices it without a restart.";

    private readonly IReadOnlyList<NodeExamination> _answered = [.. nodes.Where(node => node.Error.Length == 0)];

    // The coordinator's data may be lost. A node with an empty directory could create the cluster anew then, and a recovery needs what is in the directories.
    private readonly bool _mayLackRecords = nodes.Any(static node => WaitingNode.IsIn(node.Error) || node.CoordinatorRefusal.Length > 0);

    /// <summary>The certificates that routers present.</summary>
    public IReadOnlyList<PresentedCertificate> Presented { get; init; } = [];

    /// <summary>All findings, in the order of the checks.</summary>
    public IReadOnlyList<Finding> Findings() =>
    [
        .. Nodes(), .. Shards(), .. Versions(), .. Clocks(),
        .. _answered.SelectMany(node => (IEnumerable<Finding>)[Disk(node),
            FreeSpace(node), Coordinator(node), OpenFiles(node), Stalls(node), .. Aside(node), .. Memory(node), .. Certificate(node)]),
        .. Presented.Select(RouterCertificate),
    ];

    private IEnumerable<Finding> Nodes() => nodes.Select(node => node.Error.Length == 0
        ? new Finding(Severity.Ok, $"node {node.Node}", $"answers at {node.Address}")
        : WaitingNode.IsIn(node.Error)
        ? new Finding(Severity.Problem, $"node {node.Node}", $"has started and waits for its coordinator's records: {node.Error}",
            $"If other nodes follow the coordinator, compare this node's setting `coordinator` with theirs. Otherwise its data is lost or old: {Recover}")
        : new Finding(Severity.Problem, $"node {node.Node}", $"does not answer at {node.Address}: {node.Error}", _mayLackRecords
            ? $"Read the end of its log, run `kv-node health` there, and start it again with its data directory. The coordinator's data may be lost: {Recover}"
            : "Read the end of its log, run `kv-node health` there, and start it again. If its disk is lost, start it with an empty data directory under the "
                + $"same number: its replicas are rebuilt there. If it will not come back, {Substitute(node.Node)}"));

    // A shard has one replica on a node, so without a further node there is no place for those of this one.
    private string Substitute(uint node) =>
        nodes.Count > status.Nodes.SelectMany(static one => one.Replicas).Select(static replica => replica.Voters.Count).DefaultIfEmpty(nodes.Count).Max()
            ? $"move its replicas to the other nodes: `kv admin replace-node {node}`."
            : $"do the same on another machine, or add a node and run `kv admin replace-node {node} NEW`.";

    private IEnumerable<Finding> Shards()
    {
        const string Needs = "A majority of its nodes must run, reach one another and reach the coordinator.";
        var replicas = status.Nodes.SelectMany(node => node.Replicas.Select(replica => (node.Node, Replica: replica))).ToLookup(one => one.Replica.Shard);
        var silent = status.Nodes.Where(static node => node.Error.Length > 0).Select(static node => node.Node).ToHashSet();
        var sound = replicas.Count;
        foreach (var shard in replicas.OrderBy(shard => shard.Key))
        {
            var found = new List<Finding>();
            var voters = shard.MaxBy(static one => one.Replica.Epoch).Replica.Voters;
            var untold = shard.Where(one => one.Replica.Role == ReplicaStatus.Unknown).Select(one => one.Node).ToList();
            // A leader that no follower answers still reports that it leads.
            if (voters.Count(node => !silent.Contains(node)) is var answer && voters.Count > 0 && answer * 2 <= voters.Count)
            {
                found.Add(new Finding(Severity.Problem, $"shard {shard.Key}", $"only {answer} of the nodes of its {voters.Count} voters answer, which is not a "
                    + "majority, so it serves no linearizable reads and no writes", Needs));
            }
            else if (untold.Count > 0)
            {
                found.Add(new Finding(
                    Severity.Warning, $"shard {shard.Key}",
                    $"the version of node {string.Join(", ", untold)} tells no role that this kv knows, so its leader may not be known here",
                    "Use the kv of that version, and complete the upgrade or roll it back."));
            }
            else if (shard.All(one => one.Replica.Role != "leader"))
            {
                found.Add(new Finding(Severity.Problem, $"shard {shard.Key}", "has no leader, so it serves no linearizable reads and no writes", Needs));
            }
            foreach (var (node, replica) in shard.Where(one => one.Replica.LacksSpace.Length > 0))
            {
                found.Add(new Finding(
                    Severity.Problem, $"shard {shard.Key}", $"the replica on node {node} cannot be rebuilt, because its disk lacks space: {replica.LacksSpace}",
                    "Until it is, the shard survives one failure less. It is tried again every few seconds: enlarge the volume, delete what else is on it, or "
                    + "delete a copy that was set aside (the findings of the node name them)."));
            }
            foreach (var (node, replica) in shard.Where(one => one.Replica.Failure.Length > 0 && one.Replica.LacksSpace.Length == 0))
            {
                found.Add(new Finding(Severity.Problem, $"shard {shard.Key}", $"the replica on node {node} has failed: {replica.Failure}",
                    $"It is rebuilt automatically while a majority works. If that does not happen, run `kv admin replace {shard.Key} --from {node}`."));
            }
            sound -= found.Count > 0 ? 1 : 0;
            foreach (var finding in found)
                yield return finding;
        }
        if (replicas.Count > 0 && sound == replicas.Count)
            yield return new Finding(Severity.Ok, "shards", $"{replicas.Count}, each with a leader");
    }

    private IEnumerable<Finding> Versions()
    {
        var versions = _answered.GroupBy(node => node.Version).ToList();
        if (versions.Count == 1)
            yield return new Finding(Severity.Ok, "versions", $"all nodes run {versions[0].Key}");
        else if (versions.Count > 1)
            yield return new Finding(
                Severity.Warning, "versions", string.Join("; ", versions.Select(version => $"{version.Key}: {NodesOf(version)}")),
                "Complete the upgrade, or roll it back.");
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

    // A node read its clock at some time between the question and the answer.
    private TimeSpan OffHere(NodeExamination node) => node.Clock < asked ? asked - node.Clock : node.Clock > now ? node.Clock - now : TimeSpan.Zero;

    private static Finding Clock(TimeSpan apart, string who) => apart < ClocksApartWarning
        ? new Finding(Severity.Ok, "clocks", $"{who} are at most {Milliseconds(apart)} apart")
        : new Finding(apart < ClocksApartProblem ? Severity.Warning : Severity.Problem, "clocks", $"{who} are {Milliseconds(apart)} apart",
            "Run chrony or systemd-timesyncd on each machine. No data are at risk, and keys and sessions end by no such clock; "
            + "but certificates, the times in logs and the wall times of records depend on them.");

    private static Finding Disk(NodeExamination node) => node switch
    {
        { DiskError.Length: > 0 } => new Finding(Severity.Problem, $"disk of node {node.Node}", $"could not be measured: {node.DiskError}", "Check that the "
            + "volume is mounted, has free space and is writable."),
        _ when node.SyncMedian < SyncWarning => new Finding(Severity.Ok, $"disk of node {node.Node}", SyncText(node)),
        _ => new Finding(node.SyncMedian < SyncProblem ? Severity.Warning : Severity.Problem, $"disk of node {node.Node}", SyncText(node),
            "Every write waits for the disks of a majority. Use local SSDs with power-loss protection, and let nothing else use the disk."),
    };

    private static string SyncText(NodeExamination node) =>
        $"writing and syncing 4 KiB takes {Milliseconds(node.SyncMedian)} (median), {Milliseconds(node.SyncLongest)} (longest)";

    private Finding FreeSpace(NodeExamination node)
    {
        var replicas = status.Nodes.Where(one => one.Node == node.Node).SelectMany(one => one.Replicas).ToList();
        var (allocated, length) = (replicas.Sum(replica => (long)replica.DataAllocatedBytes), replicas.Sum(replica => (long)replica.DataBytes));
        var text = string.Create(CultureInfo.InvariantCulture,
            $"{node.DiskFreeBytes / 1e9:N1} of {node.DiskBytes / 1e9:N1} GB are free; data files of {length / 1e9:N1} GB take {allocated / 1e9:N1} GB");
        return node.DiskFreeBytes < FreeBytesProblem
            ? new Finding(
                Severity.Problem, $"free space of node {node.Node}", text, "When no space is left, puts are refused and deletes still work. " + MakeRoom)
            : node.DiskFreeBytes < node.DiskBytes / 10
                ? new Finding(Severity.Warning, $"free space of node {node.Node}", text, "Puts are refused when no space is left. " + MakeRoom)
                : new Finding(Severity.Ok, $"free space of node {node.Node}", text);
    }

    private static IEnumerable<Finding> Aside(NodeExamination node) => node.Aside.Select(copy => new Finding(
        Severity.Warning,
        $"aside of node {node.Node}",
        string.Create(CultureInfo.InvariantCulture, $"the copy '{copy.Name}' of a replica of shard {copy.Shard} takes {copy.Bytes / 1e6:N0} "
            + $"MB{(copy.KeptBecause.Length == 0 ? "" : $", and is kept although space is needed, because {copy.KeptBecause}")}"),
        "Examine it if the cause is not known, and delete it there when the shard has all its replicas: "
        + $"`kv-node aside remove DATA {copy.Name} --accept-loss`, with the node's data directory. Without `--accept-loss` it says what is in the copy."));

    private static Finding Coordinator(NodeExamination node) => node switch
    {
        { CoordinatorError.Length: > 0 } => new Finding(Severity.Problem, "coordinator", $"does not answer node {node.Node}: {node.CoordinatorError}",
            "Shards that have a leader continue; failover waits. Check `etcdctl endpoint health --cluster`, the network between the node and etcd, and the "
            + "user and password."),
        { CoordinatorRefusal.Length: > 0 } => new Finding(Severity.Problem, "coordinator", $"is not followed by node {node.Node}: {node.CoordinatorRefusal}",
            "Leaders go on and nobody can take over. If its data is lost or old: `kv admin coordinator recover --plan`."),
        _ when node.CoordinatorTime < CoordinatorWarning =>
            new Finding(Severity.Ok, "coordinator", $"answers node {node.Node} within {Milliseconds(node.CoordinatorTime)}"),
        _ => new Finding(Severity.Warning, "coordinator", $"answers node {node.Node} within {Milliseconds(node.CoordinatorTime)}",
            "A failover needs several of its answers. Give etcd a fast disk of its own; `etcdctl check perf` measures it."),
    };

    private static Finding OpenFiles(NodeExamination node)
    {
        var text = node.OpenFilesMax == 0 ? "not known on its system" : string.Create(CultureInfo.InvariantCulture, $"{node.OpenFiles} of {node.OpenFilesMax}");
        var subject = $"open files of node {node.Node}";
        return node.OpenFilesMax > 0 && node.OpenFiles > node.OpenFilesMax / 5 * 4
            ? new Finding(Severity.Problem, subject, text, "The node will soon be unable to open files and connections. "
                + "Raise the limit (LimitNOFILE of the unit, ulimits of the container) and restart it.")
            : node.OpenFilesMax is > 0 and < OpenFilesMin
                ? new Finding(
                    Severity.Warning, subject, text, $"Raise the limit to at least {OpenFilesMin} (LimitNOFILE of the unit, ulimits of the container).")
                : new Finding(Severity.Ok, subject, text);
    }

    private Finding Stalls(NodeExamination node)
    {
        var subject = $"stalls of node {node.Node}";
        if (node.StallEnd is not { } end)
            return new Finding(Severity.Ok, subject, "none of 250 ms or more since it started");
        var text = string.Create(CultureInfo.InvariantCulture, $"{node.Stalls} since it started, the last one {Math.Max(0, (now - end).TotalMinutes):N0} "
            + $"minutes ago: {node.StallText}");
        return now - end > StallWarning
            ? new Finding(Severity.Ok, subject, text)
            : new Finding(node.StallLength < StallProblem ? Severity.Warning : Severity.Problem, subject, text,
                "Followers elect another leader after 0.6 s without a heartbeat. Give the node processors of its own (cause: "
                + "no processor) or more memory (page faults, collection), and read its log. Compiling ends soon after a start.");
    }

    private static IEnumerable<Finding> Memory(NodeExamination node)
    {
        if (node.Memory is not { } memory)
            yield break;
        var text = string.Create(CultureInfo.InvariantCulture,
            $"stores use {memory.UsedBytes >> 20:N0} of {memory.BudgetBytes >> 20:N0} MiB: changed pages {memory.ChangedPagesBytes >> 20:N0}, pages held by "
            + $"readers {memory.ReaderPagesBytes >> 20:N0}, free pages {memory.FreePagesBytes >> 20:N0}, journal {memory.JournalBytes >> 20:N0}, journal index "
            + $"{memory.JournalIndexBytes >> 20:N0}, waiting requests {memory.RequestsBytes >> 20:N0}; held back for {memory.HeldBack.TotalSeconds:N0} s since "
            + $"it started");
        // Pages that readers hold are left out, because they slow nobody.
        yield return memory.UsedBytes - memory.ReaderPagesBytes <= memory.BudgetBytes / 2
            ? new Finding(Severity.Ok, $"memory of node {node.Node}", text)
            : new Finding(Severity.Warning, $"memory of node {node.Node}", text,
                "Writers are slowed until checkpoints are written. If that lasts, give the node a faster disk, fewer shards, or more memory and a greater "
                + "memory-budget-mib.");
    }

    private IEnumerable<Finding> Certificate(NodeExamination node)
    {
        var subject = $"certificate of node {node.Node}";
        if (node.CertificateError.Length > 0)
            yield return new Finding(
                Severity.Problem, subject, $"the certificates now in its files cannot be used, so the earlier ones stay in use: {node.CertificateError}",
                "Put matching files in place. The node reads them within seconds.");
        if (node.CertificateEnd is { } end)
            yield return Expiry(subject, node.CertificateFile, end);
    }

    private Finding RouterCertificate(PresentedCertificate presented)
    {
        var subject = $"certificate of {presented.Server}";
        return presented.End is { } end
            ? Expiry(subject, "what it presents", end)
            : new Finding(Severity.Problem, subject, $"could not be read: {presented.Error}", "Read the end of the router's log, and check that it listens at "
                + "this address with TLS.");
    }

    private Finding Expiry(string subject, string what, DateTimeOffset end)
    {
        var left = end - now;
        var text = left > TimeSpan.Zero ? $"{what} expires in {left.TotalDays:N1} days, {end:u}" : $"{what} has expired, {end:u}";
        return left > CertificateWarning
            ? new Finding(Severity.Ok, subject, text)
            : new Finding(left > CertificateProblem ? Severity.Warning : Severity.Problem, subject, text, "Put new certificates into the same files. "
                + "They are read within seconds, without a restart.");
    }

    private static string NodesOf(IEnumerable<NodeExamination> those) => "node " + string.Join(", ", those.Select(node => node.Node));

    private static string Milliseconds(TimeSpan time) => string.Create(CultureInfo.InvariantCulture, $"{time.TotalMilliseconds:N1} ms");
}
