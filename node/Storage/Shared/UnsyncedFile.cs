using KvCluster.Storage.Files;

namespace KvCluster.Storage.Shared;

/// <summary>
/// A segment that is written through the page cache, and what the disk may lack of it. Until it is synced, blocks of the <see cref="SharedJournal"/> have that.
/// <see cref="SharedJournal"/> owns it and changes it under its lock. The shard's lanes write, also to different places of it at once: it does not matter here
/// which of two syncs is told of an error, because either ends everything.
/// </summary>
internal sealed class UnsyncedFile(IStorageFile file, byte[] name, string directory)
{
    /// <summary>Its path below the data directory, in UTF-8.</summary>
    public ReadOnlyMemory<byte> Name => name;

    /// <summary>The directory of the journal that it is a segment of.</summary>
    public string Directory => directory;

    /// <summary>The oldest shared file that has something which the disk may lack here; 0 if there is none.</summary>
    public long Since { get; set; }

    /// <summary>Whether it is being synced.</summary>
    public bool IsSyncing { get; set; }

    /// <summary>Whether its owner writes no more. It is closed when the disk has everything.</summary>
    public bool IsReleased { get; set; }

    /// <summary>Writes whole blocks into the page cache.</summary>
    /// <exception cref="StorageIoException">An I/O error, or the disk is full.</exception>
    public void Write(ReadOnlySpan<byte> blocks, long offset) => file.Write(blocks, offset);

    /// <summary>Makes the system begin to write out what was written, so that <see cref="Sync"/> has little left to do.</summary>
    /// <exception cref="StorageIoException">An I/O error.</exception>
    public void BeginSync() => file.BeginWriteOut(0, file.Length);

    /// <summary>Makes durable what was written.</summary>
    /// <exception cref="StorageIoException">An I/O error. The disk may lack any of it, also after another sync.</exception>
    public void Sync() => file.Sync();

    /// <summary>Closes it, once it is released and nothing is to be synced any more.</summary>
    public void Close() => file.Dispose();
}
