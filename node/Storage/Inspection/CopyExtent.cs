using System.Buffers.Binary;
using KvCluster.Storage.Control;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Recovery;

namespace KvCluster.Storage.Inspection;

/// <summary>
/// How far the copy of a replica reaches that no process uses: its newest record, committed or only prepared. Whoever deletes the copy must know that others
/// have all of it, so the newest record is only told where the journal shows that nothing durable is missing behind it, by the same table by which the engine
/// would decide. Damage to pages, and a quarantine, do not matter for that. A last record of which even the envelope is damaged looks like unused space; but
/// nobody could get it back from the copy either. Reads the whole journal; changes nothing. Any thread.
/// </summary>
/// <param name="Replica">The replica; 0 if nothing tells.</param>
/// <param name="Shard">Its shard.</param>
/// <param name="Control">The newest hard state; null if the control file is lost.</param>
internal sealed record CopyExtent(ReplicaId Replica, ShardId Shard, ControlState? Control)
{
    /// <summary>Its newest record; null if that cannot be determined.</summary>
    public Etag? Newest { get; init; }

    /// <summary>Why it cannot; empty if it can.</summary>
    public string WhyUnknown { get; init; } = "";

    /// <summary>Reads a directory. Whatever is wrong with it is part of the result.</summary>
    public static CopyExtent Read(IFileSystem files, string directory)
    {
        try
        {
            using var copy = StoppedReplica.Open(files, directory);
            var (replica, shard) = copy.Identity;
            var extent = new CopyExtent(replica, shard, copy.Control);
            return WhyUnknownOf(copy) is { } why ? extent with { WhyUnknown = why } : extent with { Newest = copy.Journal!.Last.Etag };
        }
        catch (Exception unreadable) when (unreadable is IOException or UnauthorizedAccessException or CorruptStoreException or FormatVersionException)
        {
            return new CopyExtent(ReplicaId.None, default, Control: null) { WhyUnknown = unreadable.Message.TrimEnd('.') };
        }
    }

    private static string? WhyUnknownOf(StoppedReplica copy)
    {
        if (copy.Control is not { } control)
            return "its control file is lost";
        if (copy.State is null)
            return "it has no state directory";
        // The older one may have prepared records of its own.
        if (copy.StatesLeft.Any())
            return "it has more than one state directory";
        if (copy.Newest is not { } meta)
            return "both meta pages of its data file are lost";
        if (meta.Identity != BinaryPrimitives.ReadUInt128LittleEndian(StoreDirectory.IdentityOf(control)))
            return "its data file belongs to another replica";
        // The record may have been intact once. One that was only torn by a power cut looks the same.
        if (copy.Journal!.Tail == JournalTailState.Torn)
            return "its journal ends in a record that is not intact";
        // The data file's pages, and whether its content is trusted, say nothing of what the journal has.
        var facts = copy.Facts with { Quarantined = null, DataFault = null };
        var row = RecoveryDecisions.Decide(facts);
        return row.Decision == RecoveryDecision.Open ? null : row.Describe(facts);
    }
}
