using System.Buffers.Binary;
using System.Collections.Concurrent;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Journal;

namespace KvCluster.Storage.Recovery;

/// <summary>Creates a replica's directory. Any thread. A crash leaves either the whole directory or a temporary one that the next creation removes.</summary>
internal static class StoreDirectory
{
    /// <summary>The number of the first state directory.</summary>
    public const uint FirstState = 1;

    private const ulong FirstSegment = 1;

    /// <summary>
    /// Creates the directory with an empty state. All of it is durable except the directory's own name. The first open syncs that, also when this method
    /// failed after the rename.
    /// </summary>
    public static void Create(StoreContext context, string directory, ControlState initial)
    {
        ArgumentOutOfRangeException.ThrowIfZero(initial.ReplicaId.Value);
        var files = context.Files;
        var creating = new StoreLayout(new StoreLayout(directory).Creating);
        files.DeleteDirectory(creating.Directory);
        files.CreateDirectory(creating.Directory);
        ControlFile.Create(files, creating.Control, initial).Dispose();
        new SpaceReserve(files, creating.Reserve, context.Options.ReserveBytes).Renew();
        var state = creating.State(FirstState);
        files.CreateDirectory(state);
        PageStore.Create(files, StoreLayout.Data(state), context.Options.Pages, IdentityOf(initial)).Dispose();
        CreateJournal(files, context.Options.SegmentBytesMin, state, initial, default);
        files.SyncDirectory(state);
        files.SyncDirectory(creating.Directory);
        files.Rename(creating.Directory, directory);
    }

    /// <summary>
    /// Whether nothing was written since the state was created. Then its name, and for the first state the directory's name, may not be durable.
    /// </summary>
    public static bool IsNew(JournalLine line) => line.Newest <= FirstSegment;

    /// <summary>Makes the name of a new directory durable. Called before anything in it counts.</summary>
    public static void SyncName(IFileSystem files, string directory) => files.SyncDirectory(ParentOf(directory));

    /// <summary>Creates a state's journal with one empty segment that begins after a record. Everything except the state's own name is durable.</summary>
    public static void CreateJournal(IFileSystem files, int segmentBytes, string state, ControlState control, RecordRef last)
    {
        var directory = StoreLayout.Journal(state);
        files.CreateDirectory(directory);
        using var preparation = SegmentPreparation.Begin(files, directory, FirstSegment, segmentBytes, new ConcurrentStack<ulong>());
        using var block = new AlignedBuffer(SegmentHeader.BlockBytes);
        // Nothing is ever appended to this segment, because the first open starts a new one. Its incarnation therefore has no meaning.
        new SegmentHeader(FirstSegment, control.ReplicaId.Value, control.ReplicaId, control.Shard, 0, 0, 0, last.Etag, last.Checksum).WriteTo(block.Span);
        preparation.File.WriteDurable(block.Span, 0);
        files.SyncDirectory(directory);
    }

    /// <summary>The data file's identity, made of replica and shard, so that another replica's file is not mistaken for it.</summary>
    public static byte[] IdentityOf(ControlState control)
    {
        var identity = new byte[16];
        BinaryPrimitives.WriteUInt64LittleEndian(identity, control.ReplicaId.Value);
        BinaryPrimitives.WriteUInt32LittleEndian(identity.AsSpan(8), control.Shard.Value);
        return identity;
    }

    private static string ParentOf(string directory) =>
        Path.GetDirectoryName(Path.TrimEndingDirectorySeparator(directory)) is { Length: > 0 } parent ? parent : ".";
}
