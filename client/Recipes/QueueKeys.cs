namespace KvCluster.Client;

/// <summary>The keys of a <see cref="KvQueue"/>: its prefix, a kind, and the id of a job. Pure.</summary>
/// <param name="Prefix">What all keys of the queue begin with.</param>
internal sealed record QueueKeys(KvKey Prefix)
{
    /// <summary>The job with its payload, from when it is enqueued until it is completed or dead.</summary>
    public const string Job = "job";

    /// <summary>There while nobody gets the job: somebody has it, or it has to wait. It expires.</summary>
    public const string Lease = "lease";

    /// <summary>How often the job was handed out.</summary>
    public const string Attempts = "attempts";

    /// <summary>The payload of a job that was put aside.</summary>
    public const string Dead = "dead";

    /// <summary>Why the last attempt failed.</summary>
    public const string Reason = "reason";

    /// <summary>A key of a job.</summary>
    public KvKey Of(string kind, Guid job) => Behind(KvKey.Of(kind, job));

    /// <summary>What all keys of a kind begin with.</summary>
    public KvKey Of(string kind) => Behind(KvKey.Of(kind));

    /// <summary>The job that a key belongs to; null if it is not of the kind.</summary>
    public Guid? JobOf(KvKey key, string kind) =>
        key.Length > Prefix.Length && ((KvKey)key.Memory[Prefix.Length..]).TryRead(out var parts)
        && parts is [{ Kind: KvKeyPartKind.Text } first, { Kind: KvKeyPartKind.Guid } second] && first.ToText() == kind ? second.ToGuid() : null;

    private KvKey Behind(KvKey key) => (byte[])[.. Prefix.Span, .. key.Span];
}
