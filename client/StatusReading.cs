using KvCluster.V1;

namespace KvCluster.Client;

/// <summary>Converts status messages to the public types.</summary>
internal static class StatusReading
{
    public static ClusterStatus ToStatus(GetStatusResponse message) => new(message.Cluster, [.. message.Nodes.Select(ToNode)]);

    public static ReplicaCheckpoint ToCheckpoint(Admin.V1.ReplicaCheckpoint message) =>
        new(message.Node, message.HasShard ? message.Shard : null, message.Etag.ToEtag(), message.DataBytes, message.Error);

    public static NodeExamination ToExamination(Admin.V1.NodeExamination message) => new(message.Node, message.Address, message.Version, message.Error)
    {
        Clock = DateTimeOffset.UnixEpoch.AddMicroseconds(message.ClockUs),
        SyncMedian = TimeSpan.FromMicroseconds(message.SyncUs),
        SyncLongest = TimeSpan.FromMicroseconds(message.SyncUsMax),
        DiskError = message.DiskError,
        DiskFreeBytes = message.DiskFreeBytes,
        DiskBytes = message.DiskBytes,
        OpenFiles = message.OpenFiles,
        OpenFilesMax = message.OpenFilesMax,
        CoordinatorTime = TimeSpan.FromMicroseconds(message.CoordinatorUs),
        CoordinatorError = message.CoordinatorError,
        CoordinatorRefusal = message.CoordinatorRefusal,
        CertificateEnd = message.CertificateFile.Length == 0 ? null : DateTimeOffset.UnixEpoch.AddMicroseconds(message.CertificateEndsUs),
        CertificateFile = message.CertificateFile,
        CertificateError = message.CertificateError,
        Stalls = (long)message.Stalls,
        StallLength = TimeSpan.FromMicroseconds(message.StallUs),
        StallEnd = message.Stalls == 0 ? null : DateTimeOffset.UnixEpoch.AddMicroseconds(message.StallAtUs),
        StallText = message.StallText,
        Memory = message.Memory is null ? null : ToMemory(message.Memory),
        Aside = [.. message.Aside.Select(static copy => new AsideReplica(copy.Name, copy.Shard, copy.Bytes, copy.KeptBecause))],
    };

    public static KvAdminOperation ToOperation(Admin.V1.ClusterOperation message) => new(message.Id, message.Shard, message.State switch
    {
        Admin.V1.OperationState.Done => KvOperationState.Done,
        Admin.V1.OperationState.Failed => KvOperationState.Failed,
        Admin.V1.OperationState.Cancelled => KvOperationState.Cancelled,
        _ => KvOperationState.Running,
    })
    {
        FromNode = message.HasFromNode ? message.FromNode : null,
        ToNode = message.HasToNode ? message.ToNode : null,
        Reason = message.Reason,
        Progress = message.Progress,
        DoneBytes = message.HasDoneBytes ? message.DoneBytes : null,
        TotalBytes = message.HasTotalBytes ? message.TotalBytes : null,
        Node = message.Node,
        Started = DateTimeOffset.UnixEpoch.AddMicroseconds(message.StartedUs),
        Ended = message.HasEndedUs ? DateTimeOffset.UnixEpoch.AddMicroseconds(message.EndedUs) : null,
    };

    /// <summary>
    /// A role or a state as people read it: its name in lower case, and <see cref="ReplicaStatus.Unknown"/> if an older or newer node tells none that this
    /// program knows.
    /// </summary>
    public static string TextOf<T>(T value)
        where T : struct, Enum => Enum.IsDefined(value) && !value.Equals(default(T)) ? value.ToString().ToLowerInvariant() : ReplicaStatus.Unknown;

    private static NodeMemory ToMemory(V1.NodeMemory message) => new(
        message.BudgetBytes,
        message.ChangedPagesBytes,
        message.ReaderPagesBytes,
        message.FreePagesBytes,
        message.JournalBytes,
        message.JournalIndexBytes,
        message.RequestsBytes,
        TimeSpan.FromMicroseconds(message.HeldBackUs));

    private static NodeStatus ToNode(V1.NodeStatus message) =>
        new(message.Node, message.Address, message.Version, message.Error, [.. message.Replicas.OrderBy(replica => replica.Route.Shard).Select(ToReplica)])
        {
            FormatLevels = ToRange(message.Levels?.Format),
            ContractLevels = ToRange(message.Levels?.Contract),
        };

    public static LevelsStatus ToLevels(Admin.V1.LevelsResponse message) =>
        new(message.Format, message.Contract, [.. message.Nodes.Select(static node => new NodeLevelsStatus(node.Node)
        {
            Version = node.Version,
            FormatLevels = ToRange(node.Levels?.Format),
            ContractLevels = ToRange(node.Levels?.Contract),
            FormatInUse = node.FormatInUse == 0 ? null : node.FormatInUse,
            ContractInUse = node.ContractInUse == 0 ? null : node.ContractInUse,
        })])
        {
            FormatBefore = message.FormatBefore,
            ContractBefore = message.ContractBefore,
        };

    private static KvLevelRange? ToRange(V1.LevelRange? range) => range is null ? null : new KvLevelRange(range.Min, range.Max);

    private static ReplicaStatus ToReplica(V1.ReplicaStatus message) => new(
        message.Route.Shard,
        message.Route.Start.Memory,
        message.Route.End.Memory,
        TextOf(message.Role),
        message.Epoch,
        message.Route.Leader,
        message.Last.ToEtag(),
        message.Durable.ToEtag(),
        message.Committed.ToEtag(),
        message.Applied.ToEtag(),
        message.Keys,
        message.DataBytes,
        message.DataAllocatedBytes,
        message.JournalBytes,
        message.Digest.Memory,
        message.DigestEtag.ToEtag(),
        message.Failure,
        message.Detail is null ? null : ToDetail(message.Replica, message.Detail))
    {
        Voters = [.. message.Route.Nodes],
        LacksSpace = message.LacksSpace,
    };

    private static ReplicaDetail ToDetail(ulong replica, V1.ReplicaDetail message) => new(
        replica,
        message.Incarnation,
        message.Record?.Generation ?? 0,
        TimeSpan.FromMicroseconds(message.LeaseLeftUs),
        TimeSpan.FromMicroseconds(message.GrantLeftUs),
        [.. message.Followers.Select(ToFollower)],
        [.. message.Decisions.Select(line => new ReplicaDecision(DateTimeOffset.UnixEpoch.AddMicroseconds(line.UnixUs), line.Text, line.Alarm))],
        message.ScrubbedPages,
        message.ScrubPasses,
        message.Compared is { } compared ? new ComparedDigests(compared.Etag.ToEtag(), (int)compared.Replicas, TimeSpan.FromMicroseconds(compared.AgoUs))
            : null);

    private static FollowerStatus ToFollower(V1.FollowerStatus message) => new(
        message.Replica,
        message.Node,
        TextOf(message.State),
        message.Acknowledged.ToEtag(),
        message.Sent.ToEtag(),
        message.OutstandingBytes,
        TimeSpan.FromMicroseconds(message.GrantLeftUs),
        TimeSpan.FromMicroseconds(message.SilentUs),
        message.SnapshotBytes,
        message.SnapshotStored,
        message.SnapshotVerified);
}
