using System.Globalization;
using System.Net;
using System.Text;
using KvCluster.Node.Coordination;
using KvCluster.Node.Coordination.Etcd;
using KvCluster.Replication.Protocol;
using KvCluster.ServiceDefaults.Configuration;
using KvCluster.ServiceDefaults.Hosting;
using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Tls;

namespace KvCluster.Node.Configuration;

/// <summary>The settings of kv-node's commands, the checks of their combinations, and the options derived from them.</summary>
internal static class NodeSettings
{

    private const string CompressedValues = "values";

    /// <summary>The part of a stop's time that a node's parts need to stop.</summary>
    private static readonly TimeSpan PartsStopTime = TimeSpan.FromSeconds(2.5);

    public static readonly Setting<NodeId> Node =
        new("node", "N", "Id of the node, from 1.", new SettingParser<NodeId>(ParseNode, SettingForms.NumberSchema(1, uint.MaxValue)));
    public static readonly Setting<NodeId> PodName =
        new("pod-name", "NAME", "Instead of the id, the name of a pod of a StatefulSet: kvcluster-node-0 has the id 1.", NodeOfPod);
    public static readonly Setting<string> Data = new("data", "DIR", "Data directory. One process uses it at a time.", Folder) { IsRequired = true };
    public static readonly Setting<string> Listen = new(
        "listen", "URL", "Address for clients, for example http://127.0.0.1:7401.",
        SettingForms.Url(Uri.UriSchemeHttp, Uri.UriSchemeHttps)) { IsRequired = true };
    public static readonly Setting<string> Advertise = new(
        "advertise", "URL", "Address at which others reach this node, if it differs from listen. Required if listen is every address of the machine.",
        SettingForms.Url(Uri.UriSchemeHttp, Uri.UriSchemeHttps));
    public static readonly Setting<string> ListenPeers = new("listen-peers", "URL",
        "Address for the other nodes of the cluster; by default the host of listen, 100 ports above it. Clients need not reach it.",
        SettingForms.Url(Uri.UriSchemeHttp, Uri.UriSchemeHttps));

    public static readonly Setting<string> AdvertisePeers = new("advertise-peers", "URL",
        "Address at which the other nodes reach listen-peers; by default the host of advertise.", SettingForms.Url(Uri.UriSchemeHttp, Uri.UriSchemeHttps));

    public static readonly Setting<string> Cluster = new("cluster", "NAME", "Name of the cluster.", ClusterName) { Default = "local" };

    public static readonly Setting<IReadOnlyList<string>> Coordinator = new("coordinator", "KIND=URLS",
        "All members of the coordinator: etcd=http://10.0.0.1:2379,http://10.0.0.2:2379 or etcd=https://...", Etcd) { IsRequired = true };

    public static readonly Setting<string> CoordinatorCa = new(
        "coordinator-ca", "FILE", "With https: PEM file of the authorities that signed the coordinator's certificates; by default those of the machine.",
        SettingForms.Path);
    public static readonly Setting<string> CoordinatorCert =
        new("coordinator-cert", "FILE", "With https: PEM file of the client certificate to present.", SettingForms.Path);
    public static readonly Setting<string> CoordinatorKey = new("coordinator-key", "FILE", "PEM file of that certificate's private key.", SettingForms.Path);
    public static readonly Setting<string> CoordinatorUser = new("coordinator-user", "NAME", "User name at the coordinator.", SettingForms.Text);
    public static readonly Setting<string> CoordinatorPasswordFile =
        new("coordinator-password-file", "FILE", "File with that user's password, on one line.", SettingForms.Path);

    public static readonly Setting<IReadOnlyList<NodeId>> BootstrapNodes = new("bootstrap-nodes", "IDS",
        "Ids of the first nodes: 1,2,3. Once all of them have started with empty data directories, they create the cluster, if the coordinator has none of "
        + "this name. All nodes have the same value. It has no effect once there is the cluster, and may then be removed, with replicas and "
        + "split-at.", NodeIds);

    public static readonly Setting<IReadOnlyList<NodeId>> Nodes =
        new("nodes", "IDS", "The ids of the cluster's nodes, separated by commas: 1,2,3", NodeIds) { IsRequired = true };
    public static readonly Setting<int?> Replicas =
        new("replicas", "N", "New cluster only: replicas of each shard; by default 3, or all nodes if there are fewer.", SettingForms.OptionalNumber(1, 64));
    public static readonly Setting<IReadOnlyList<ReadOnlyMemory<byte>>> SplitAt =
        new("split-at", "KEYS", "New cluster only: keys at which shards begin, separated by commas: files/,packages/", SplitKeys);

    public static readonly Setting<int> JournalRetention = new("journal-retention-mib", "MIB",
        "Journal that each shard keeps although a checkpoint covers it, so that a follower that was away needs no snapshot.",
        SettingForms.Number(0, 1 << 20)) { Default = "256" };

    public static readonly Setting<string> Compress = new("compress", "WHAT",
        "What the replicas of this node compress in their data files: nothing, or values from 256 bytes on where LZ4 saves a quarter of them, which suits "
        + "text. It takes effect on values that are put from the first start at format level 5 on, and costs processor time for each put and read of them. "
        + "Nodes may differ in it.",
        SettingForms.Choice("nothing", CompressedValues)) { Default = "nothing" };

    public static readonly Setting<int?> MemoryBudget = new("memory-budget-mib", "MIB",
        "Memory that the stores of all replicas of the node may use together: changed, held and free pages, the journal's newest records and index, waiting "
        + "requests; by default a quarter of the machine's memory, or 3/16 of the container's limit, of which .NET's heap has at most three quarters, "
        + "and at least 128. Above half of it, writers and applying followers are slowed until checkpoints are written. Client calls have their own limit, "
        + "call-memory-mib.",
        SettingForms.OptionalNumber(NodeOptions.MemoryBudgetMin, 1 << 24));

    public static readonly Setting<int> DigestInterval = new("digest-interval-minutes", "MINUTES",
        "How often a shard's leader on this node has the replicas' trees compared; 0: never.", SettingForms.Number(0, 525_600)) { Default = "60" };

    public static readonly Setting<int> TelemetryShards = new("telemetry-shards", "N",
        "Number of shards of a node, those with the lowest ids, that have metrics of their own. The metrics of the node cover all shards.",
        SettingForms.Number(0, 100_000)) { Default = "64" };

    public static readonly Setting<string> SnapshotDirectory = new("snapshot-dir", "DIR", "Directory for the snapshots.", Folder) { IsRequired = true };

    public static readonly Setting<int> SnapshotsKept = new(
        "snapshot-keep", "N", "How many snapshots are kept. When a further one is complete, the oldest is deleted.",
        SettingForms.Number(1, 10_000)) { Default = "28" };

    public static readonly Setting<int> SnapshotInterval = new("snapshot-interval-minutes", "MINUTES",
        "Take a snapshot whenever the newest one is this old, until the program is stopped; 0: take one and end.",
        SettingForms.Number(0, 525_600)) { Default = "0" };

    /// <summary>What a node needs besides its stores and calls: the runtime, the map of the shards, frames to other nodes. In MiB.</summary>
    private const int ProgramMebibytes = 96;

    /// <summary>The part of that which is not in the heap of managed objects: code, stacks, what the runtime keeps for itself. In MiB.</summary>
    private const int ProgramOutsideHeapMebibytes = 48;

    private static readonly Setting[] EtcdTable =
        [Coordinator, CoordinatorCa, CoordinatorCert, CoordinatorKey, CoordinatorUser, CoordinatorPasswordFile, Cluster];

    public static readonly IReadOnlyList<Setting> RunTable =
    [
        CommonSettings.Config, Node, PodName, Data, Listen, Advertise, ListenPeers, AdvertisePeers,
        CommonSettings.ServeAdmin, .. EtcdTable, BootstrapNodes, Replicas, SplitAt, JournalRetention, Compress, MemoryBudget, DigestInterval,
        TelemetryShards,
        CommonSettings.CallMemoryMebibytes, CommonSettings.ConnectionsMax, CommonSettings.Admin, CommonSettings.AdminTokenFile, CommonSettings.AdminHosts,
        .. CommonSettings.Tls, CommonSettings.LogFormat, CommonSettings.LogLevel, CommonSettings.StopGrace, CommonSettings.UntilStdinEnds,
    ];

    public static readonly IReadOnlyList<Setting> InitTable =
        [CommonSettings.Config, .. EtcdTable, Nodes, Replicas, SplitAt, CommonSettings.LogFormat, CommonSettings.LogLevel];

    public static readonly IReadOnlyList<Setting> CoordinatorTable = [CommonSettings.Config, Data,
        Listen, CommonSettings.AllowPlaintext, CommonSettings.LogFormat, CommonSettings.LogLevel, CommonSettings.StopGrace, CommonSettings.UntilStdinEnds];

    public static readonly IReadOnlyList<Setting> SnapshotTable =
        [CommonSettings.Config,
            .. EtcdTable, SnapshotDirectory, SnapshotsKept, SnapshotInterval, CommonSettings.LogFormat, CommonSettings.LogLevel, CommonSettings.UntilStdinEnds];

    /// <summary>All settings.</summary>
    public static readonly IReadOnlyList<Setting> Known = [.. RunTable.Union(InitTable).Union(CoordinatorTable).Union(SnapshotTable)];

    public static void CheckRun(Settings settings)
    {
        if (settings.IsGiven(Node) == settings.IsGiven(PodName))
            settings.AddMistake(Node, $"one of {Node.Name} and {PodName.Name} must say which node it is.");
        CheckEtcd(settings);
        CheckNewCluster(settings, BootstrapNodes);
        CommonSettings.CheckTls(settings, Listen, callsHttps: false);
        if (settings.IsGiven(CommonSettings.TlsCert) && settings.Get(Cluster) is { } cluster && !NodeNames.MayNameCluster(cluster))
            settings.AddMistake(Cluster, NodeNames.UnfitCluster(cluster));
        if (settings.Get(Listen) is { } listen && settings.Get(Advertise) is { } advertise && new Uri(listen).Scheme != new Uri(advertise).Scheme)
            settings.AddMistake(Advertise, $"'{advertise}' and '{listen}', of {Listen.Name}, must both be http:// or both https://.");
        // Other nodes and clients are given this address, and each would connect to itself.
        if ((settings.Get(Advertise) ?? settings.Get(Listen)) is { } told && IsEveryAddress(told))
            settings.AddMistake(Advertise, $"'{told}'{(settings.IsGiven(Advertise) ? "" : $", of {Listen.Name},")} is every address of this machine; "
                + "give the one where others reach this node.");
        CheckPeers(settings);
    }

    private static void CheckPeers(Settings settings)
    {
        if (settings.Get(Listen) is not { } listen)
            return;
        foreach (var other in (ReadOnlySpan<Setting<string>>)[ListenPeers, AdvertisePeers])
        {
            if (settings.Get(other) is { } url && new Uri(url).Scheme != new Uri(listen).Scheme)
                settings.AddMistake(other, $"'{url}' and '{listen}', of {Listen.Name}, must both be http:// or both https://.");
        }
        if (settings.Get(AdvertisePeers) is { } told && IsEveryAddress(told))
            settings.AddMistake(AdvertisePeers, $"'{told}' is every address of this machine; give the one where other nodes reach this node.");
        if (!settings.IsGiven(ListenPeers) && new Uri(listen).Port + NodeOptions.PeerPortOffset > ushort.MaxValue)
            settings.AddMistake(ListenPeers, $"there is no port {NodeOptions.PeerPortOffset} above that of '{listen}', of {Listen.Name}; "
                + "give an address to listen on for other nodes.");
        if (settings.IsGiven(ListenPeers))
            CommonSettings.CheckPlainText(settings, ListenPeers, "use https://, or ");
        if (settings.Get(ListenPeers) is { } peers && new Uri(peers).Port != 0 && new Uri(peers).Port == new Uri(listen).Port)
            settings.AddMistake(ListenPeers, $"'{peers}' is also the port of {Listen.Name}; clients and nodes need separate ports.");
    }

    /// <summary>Why a node with these settings must not start under a limit of memory; null if it may.</summary>
    public static string? MemoryRefusal(Settings settings, long? limitBytes)
    {
        var available = Math.Min(GC.GetGCMemoryInfo().TotalAvailableMemoryBytes, (limitBytes ?? long.MaxValue) / 4 * 3);
        var calls = settings.Get(CommonSettings.CallMemoryMebibytes) ?? ProcessMemory.CallMemoryDefault(limitBytes);
        return ProcessMemory.Refusal(
            limitBytes,
            "node",
            ("the program", ProgramMebibytes),
            (MemoryBudget.Name, settings.Get(MemoryBudget) ?? NodeOptions.MemoryBudgetDefault(available)),
            (CommonSettings.CallMemoryMebibytes.Name, calls),
            ("and for intersections", calls / 4));
    }

    /// <summary>What a node takes outside the heap of managed objects: that part of the program, and the pages of its stores. In MiB.</summary>
    public static int OutsideHeapMebibytes(NodeOptions options) => ProgramOutsideHeapMebibytes + options.MemoryBudgetMebibytes;

    /// <summary>
    /// What a node may have in the heap of managed objects: the rest of the program, calls, and of the stores' budget the journal's records and their index,
    /// which grow until checkpoints are asked for at 3/8 of it. In MiB.
    /// </summary>
    public static int InHeapMebibytes(NodeOptions options) =>
        ProgramMebibytes - ProgramOutsideHeapMebibytes + options.CallMemoryMebibytes / 4 * 5 + options.MemoryBudgetMebibytes / 8 * 3;

    public static void CheckCoordinator(Settings settings)
    {
        if (settings.Get(Listen) is { } listen && new Uri(listen).Scheme != Uri.UriSchemeHttp)
            settings.AddMistake(Listen, $"'{listen}': the embedded coordinator has no TLS; where that is needed, use etcd.");
        CommonSettings.CheckPlainText(settings, Listen);
    }

    public static void CheckInit(Settings settings)
    {
        CheckEtcd(settings);
        CheckNewCluster(settings, Nodes);
    }

    public static void CheckSnapshot(Settings settings) => CheckEtcd(settings);

    public static NodeOptions OptionsOf(Settings settings) => new()
    {
        Node = settings.IsGiven(Node) ? settings.Get(Node) : settings.Get(PodName),
        DataDirectory = settings.Get(Data)!,
        Listen = settings.Get(Listen)!,
        Advertise = settings.Get(Advertise),
        ListenPeers = settings.Get(ListenPeers),
        AdvertisePeers = settings.Get(AdvertisePeers),
        ServeAdmin = settings.Get(CommonSettings.ServeAdmin),
        CallMemoryMebibytes = ProcessMemory.CallMemoryOf(settings),
        MemoryBudgetMebibytes = settings.Get(MemoryBudget) ?? NodeOptions.MemoryBudgetDefault(),
        ConnectionsMax = settings.Get(CommonSettings.ConnectionsMax),
        Cluster = settings.Get(Cluster)!,
        Tls = CommonSettings.TlsOf(settings),
        Bootstrap = settings.IsGiven(BootstrapNodes) ? NewClusterOf(settings, BootstrapNodes) : null,
        Replication = new ReplicationOptions { DigestIntervalUs = settings.Get(DigestInterval) * 60_000_000L },
        Storage = new StoreOptions
        {
            RetainedJournalBytes = (long)settings.Get(JournalRetention) << 20,
            Pages = new PageStoreOptions { CompressesValues = settings.Get(Compress) == CompressedValues },
        },
        ShardSeriesMax = settings.Get(TelemetryShards),
        StopTimeMax = ProgramCommands.StopTimeOf(settings),
        DrainTimeMax = TimeSpan.FromSeconds(Math.Max(0.3, (ProgramCommands.StopTimeOf(settings) - PartsStopTime).TotalSeconds)),
    };

    /// <summary>The cluster that settings describe.</summary>
    /// <param name="nodes">The setting with its nodes.</param>
    public static NewCluster NewClusterOf(Settings settings, Setting<IReadOnlyList<NodeId>> nodes) =>
        new(settings.Get(nodes)!, ReplicasOf(settings, settings.Get(nodes)!), settings.Get(SplitAt) ?? []);

    /// <exception cref="UnusableFileException">The password's file cannot be read.</exception>
    public static EtcdOptions EtcdOptionsOf(Settings settings) => new()
    {
        Endpoints = settings.Get(Coordinator)!,
        AuthorityFile = settings.Get(CoordinatorCa),
        CertificateFile = settings.Get(CoordinatorCert),
        KeyFile = settings.Get(CoordinatorKey),
        User = settings.Get(CoordinatorUser),
        Password = settings.Get(CoordinatorPasswordFile) is { } file ? PasswordIn(file) : "",
    };

    private static int ReplicasOf(Settings settings, IReadOnlyList<NodeId> nodes) => settings.Get(Replicas) ?? Math.Min(3, nodes.Count);

    private static void CheckEtcd(Settings settings)
    {
        if (settings.Get(Coordinator) is { } members && members[0].StartsWith("http:", StringComparison.Ordinal))
        {
            foreach (var file in (ReadOnlySpan<Setting>)[CoordinatorCa, CoordinatorCert, CoordinatorKey])
            {
                if (settings.IsGiven(file))
                    settings.AddMistake(file, "is for a coordinator at https:// only.");
            }
        }
        foreach (var (one, other) in (ReadOnlySpan<(Setting, Setting)>)[(CoordinatorCert, CoordinatorKey), (CoordinatorUser, CoordinatorPasswordFile)])
        {
            if (settings.IsGiven(one) != settings.IsGiven(other))
                settings.AddMistake(settings.IsGiven(one) ? one : other, $"{one.Name} and {other.Name} must be given together.");
        }
    }

    private static void CheckNewCluster(Settings settings, Setting<IReadOnlyList<NodeId>> nodes)
    {
        if (settings.Get(nodes) is { } ids && settings.Get(Replicas) > ids.Count)
            settings.AddMistake(Replicas, $"{settings.Get(Replicas)} replicas of a shard need as many nodes, but {nodes.Name} names {ids.Count}.");
        if (nodes == BootstrapNodes && !settings.IsGiven(nodes))
        {
            foreach (var without in (ReadOnlySpan<Setting>)[Replicas, SplitAt])
            {
                if (settings.IsGiven(without))
                    settings.AddMistake(without, $"has no effect without {nodes.Name}.");
            }
        }
    }

    private static bool IsEveryAddress(string url) =>
        IPAddress.TryParse(new Uri(url).Host.Trim('[', ']'), out var address) && (address.Equals(IPAddress.Any) || address.Equals(IPAddress.IPv6Any));

    private static string PasswordIn(string file)
    {
        try
        {
            return File.ReadAllText(file).TrimEnd('\r', '\n');
        }
        catch (Exception failure) when (failure is IOException or UnauthorizedAccessException)
        {
            throw new UnusableFileException(file, failure.Message);
        }
    }

    private static string Folder(string text) => text.Length > 0 ? Path.GetFullPath(text) : throw new FormatException("names no directory.");

    private static NodeId ParseNode(string text) => uint.TryParse(text, NumberStyles.None, CultureInfo.InvariantCulture, out var node) && node > 0
        ? new NodeId(node)
        : throw new FormatException($"'{text}' is not an id; ids are numbers from 1.");

    private static NodeId NodeOfPod(string text) =>
        uint.TryParse(text.AsSpan(text.LastIndexOf('-') + 1), NumberStyles.None, CultureInfo.InvariantCulture, out var index)
            && index < uint.MaxValue && text.Contains('-')
            ? new NodeId(index + 1)
            : throw new FormatException($"'{text}' does not end with the number of a pod, as kvcluster-node-0 does.");

    private static IReadOnlyList<string> Etcd(string text)
    {
        const string kind = "etcd=";
        if (!text.StartsWith(kind, StringComparison.Ordinal))
            throw new FormatException($"'{text}' is not of the form etcd=http://host:port,http://host:port.");
        // All endpoints use TLS, or none does.
        var scheme = text.StartsWith(kind + "https:", StringComparison.Ordinal) ? Uri.UriSchemeHttps : Uri.UriSchemeHttp;
        return [.. SettingForms.List(text[kind.Length..], SettingForms.Url(scheme)).Distinct()];
    }

    private static string ClusterName(string text) =>
        text.Length is > 0 and <= 64 && text.All(static c => char.IsAsciiLetterOrDigit(c) || c is '-' or '_' or '.')
            ? text
            : throw new FormatException($"'{text}': a name has 1 to 64 letters, digits, '-', '_' and '.'.");

    private static IReadOnlyList<NodeId> NodeIds(string text)
    {
        var nodes = SettingForms.List(text, ParseNode);
        return nodes.Distinct().Count() == nodes.Count ? nodes : throw new FormatException($"'{text}' names a node twice.");
    }

    private static IReadOnlyList<ReadOnlyMemory<byte>> SplitKeys(string text)
    {
        var keys = new List<ReadOnlyMemory<byte>>();
        foreach (var part in text.Split(','))
        {
            var key = Encoding.UTF8.GetBytes(part);
            if (key.Length is 0 or > KvLimits.KeyBytesMax)
                throw new FormatException($"a key has 1 to {KvLimits.KeyBytesMax} bytes.");
            // The character with which the runtime replaces bytes that are not UTF-8.
            if (part.Contains('\uFFFD', StringComparison.Ordinal))
                throw new FormatException("a key is not UTF-8.");
            if (keys.Count > 0 && keys[^1].Span.SequenceCompareTo(key) >= 0)
                throw new FormatException("keys must be in ascending order.");
            keys.Add(key);
        }
        return keys;
    }
}
