using System.Buffers.Binary;
using System.Collections.Concurrent;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Files;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Recovery;

/// <summary>Creates a replica's directory. Any thread. A crash leaves either the whole directory or a temporary one that the next creation removes.</summary>
internal static class StoreDirectory
{
    /// <summary>Where replay begins in a journal from <see cref="CreateJournal"/>.</summary>
    public static readonly JournalPosition FirstPosition = new(FirstSegment, SegmentHeader.BlockBytes);

    private const uint FirstState = 1;
    private const ulong FirstSegment = 1;

    /// <summary>
    /// Creates the directory with an empty state. All of it is durable except the directory's own name. The first open syncs that, also when this method
    /// failed after the rename.
    /// </summary>
    public static void Create(StoreContext context, string directory, ControlState initial)
    {
        ArgumentOutOfRangeException.ThrowIfZero(initial.ReplicaId.Value);
        var creating = new StoreLayout(directory).Creating;
        Make(context.Files, creating, context.Options, initial, last: default, static _ => { });
        context.Files.Rename(creating, directory);
    }

    /// <summary>
    /// Makes a directory under the name that it has until it is complete, in place of what may have that name. All of it is durable except the name.
    /// </summary>
    /// <param name="files">The disk.</param>
    /// <param name="directory">The name.</param>
    /// <param name="options">Sizes.</param>
    /// <param name="control">The hard state.</param>
    /// <param name="last">The record after which the journal begins.</param>
    /// <param name="fill">Called with the empty data file, to write the state as of that record.</param>
    public static void Make(IFileSystem files, string directory, StoreOptions options, ControlState control, RecordRef last, Action<PageStore> fill)
    {
        var made = new StoreLayout(directory);
        files.DeleteDirectory(directory);
        files.CreateDirectory(directory);
        ControlFile.Create(files, made.Control, control).Dispose();
        new SpaceReserve(files, made.Reserve, options.ReserveBytes).Renew();
        var state = made.State(FirstState);
        files.CreateDirectory(state);
        using (var pages = PageStore.Create(files, StoreLayout.Data(state), options.Pages, IdentityOf(control)))
            fill(pages);
        CreateJournal(files, options, state, control, last);
        files.SyncDirectory(state);
        files.SyncDirectory(directory);
    }

    /// <summary>
    /// Whether nothing was written since the state was created. Then its name, and for the first state the directory's name, may not be durable.
    /// </summary>
    public static bool IsNew(JournalScan journal) => journal.Newest <= FirstSegment;

    /// <summary>Makes the name of a new directory durable. Called before anything in it counts.</summary>
    public static void SyncName(IFileSystem files, string directory) => files.SyncDirectory(ParentOf(directory));

    /// <summary>Creates a state's journal with one empty segment that begins after a record. Everything except the state's own name is durable.</summary>
    public static void CreateJournal(IFileSystem files, StoreOptions options, string state, ControlState control, RecordRef last)
    {
        var directory = StoreLayout.Journal(state);
        files.CreateDirectory(directory);
        using var preparation = SegmentPreparation.Begin(files, directory, FirstSegment, options.SegmentBytesFirst, new ConcurrentStack<ulong>());
        using var block = new AlignedBuffer(SegmentHeader.BlockBytes);
        // Nothing is ever appended to this segment, because the first open starts a new one. Its incarnation therefore has no meaning.
        new SegmentHeader(FirstSegment, control.ReplicaId.Value, control.ReplicaId, control.Shard, 0, 0, 0, last.Etag, last.Checksum)
            .WriteTo(block.Span, SegmentHeader.VersionFor(options));
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
