// The embedded coordinator's file: a sequence of records. The first ones hold what there was when the file was written, and are synced together; each of the
// others is synced before the next is appended. A record is a header of 12 bytes (magic, payload length in bytes, CRC-32C of both and the payload, all
// little-endian) and a payload (CoordinatorRecord). Used under the coordinator's lock. A StorageIoException means that the outcome of the append is unknown;
// the coordinator stops.
using System.Buffers.Binary;
using System.Numerics;
using Google.Protobuf;
using KvCluster.Internal.V1;
using KvCluster.Storage.Files;

namespace KvCluster.Node.Coordination.Embedded;

/// <summary>Appends records durably, and replaces the file by a shorter one with the same contents.</summary>
internal sealed class CoordinatorFile : IDisposable
{
    /// <summary>The largest payload of a change. Earlier programs take a longer one for damage; here whatever its checksum confirms is read.</summary>
    public const int PayloadBytesMax = 64 << 20;

    private const uint Magic = 0x4F43_564B; // "KVCO"
    private const int HeaderBytes = 12;

    private readonly IFileSystem _files;
    private readonly string _directory;
    private IStorageFile _file;

    private CoordinatorFile(IFileSystem files, string directory, IStorageFile file, long bytes)
    {
        _files = files;
        _directory = directory;
        _file = file;
        Bytes = bytes;
    }

    /// <summary>Size of the file in bytes.</summary>
    public long Bytes { get; private set; }

    /// <summary>Opens the file in a directory and replays its records in order. An append interrupted by a crash is dropped; it was never answered.</summary>
    /// <param name="first">The first record, written if there is no file yet.</param>
    /// <param name="replay">Is given each record.</param>
    /// <exception cref="CorruptCoordinatorFileException">A record that was durable is damaged.</exception>
    public static CoordinatorFile Open(IFileSystem files, string directory, Func<CoordinatorRecord> first, Action<CoordinatorRecord> replay)
    {
        var path = PathIn(directory);
        if (!files.FileExists(path))
            DurableFile.Replace(files, path, Encode([first()]));
        var file = files.Open(path, new StorageFileOptions(StorageFileMode.OpenExisting));
        try
        {
            var bytes = Replay(file, path, replay);
            if (bytes < file.Length)
                file.Resize(bytes);
            // The process before may have ended between a write and its sync, or between the rename of a new file and the sync of the directory. What is
            // answered from here on must stay.
            file.Sync();
            files.SyncDirectory(directory);
            return new CoordinatorFile(files, directory, file, bytes);
        }
        catch
        {
            file.Dispose();
            throw;
        }
    }

    /// <summary>Appends a record. Durable when it returns.</summary>
    public void Append(CoordinatorRecord record)
    {
        var bytes = Encode([record]);
        _file.Write(bytes, Bytes);
        _file.Sync();
        Bytes += bytes.Length;
    }

    /// <summary>Replaces all records by others with the same contents. A crash leaves the old or the new file, complete.</summary>
    public void Rewrite(IReadOnlyCollection<CoordinatorRecord> whole)
    {
        var bytes = Encode(whole);
        var path = PathIn(_directory);
        DurableFile.Replace(_files, path, bytes);
        var file = _files.Open(path, new StorageFileOptions(StorageFileMode.OpenExisting));
        _file.Dispose();
        _file = file;
        Bytes = bytes.Length;
    }

    public void Dispose() => _file.Dispose();

    private static string PathIn(string directory) => Path.Combine(directory, "coordinator");

    private static byte[] Encode(IReadOnlyCollection<CoordinatorRecord> records)
    {
        var bytes = new byte[records.Sum(static record => HeaderBytes + record.CalculateSize())];
        var at = 0;
        foreach (var record in records)
            at += Encode(record, bytes.AsSpan(at));
        return bytes;
    }

    // Returns the length.
    private static int Encode(CoordinatorRecord record, Span<byte> destination)
    {
        var payload = destination.Slice(HeaderBytes, record.CalculateSize());
        record.WriteTo(payload);
        BinaryPrimitives.WriteUInt32LittleEndian(destination, Magic);
        BinaryPrimitives.WriteInt32LittleEndian(destination[4..], payload.Length);
        BinaryPrimitives.WriteUInt32LittleEndian(destination[8..], Checksum(destination[..8], payload));
        return HeaderBytes + payload.Length;
    }

    // Returns the end of the complete records.
    private static long Replay(IStorageFile file, string path, Action<CoordinatorRecord> replay)
    {
        var content = new byte[file.Length];
        if (file.Read(content, 0) != content.Length)
            throw new CorruptCoordinatorFileException(path, 0, "it is shorter than its length");
        var (at, following) = (0, 0u);
        while (TryDecode(content.AsSpan(at), out var payload))
        {
            var record = CoordinatorRecord.Parser.ParseFrom(payload);
            replay(record);
            at += HeaderBytes + payload.Length;
            following = record.Following;
        }
        if (at == 0)
            throw new CorruptCoordinatorFileException(path, at, "its first record is damaged");
        if (following > 0)
            throw new CorruptCoordinatorFileException(path, at, "the record there is damaged or missing, and was written with those before it");
        // All others are synced one by one, so only the last can be torn. A valid record after an invalid one means damage.
        for (var next = at + 1; next < content.Length; next++)
        {
            if (TryDecode(content.AsSpan(next), out _))
                throw new CorruptCoordinatorFileException(path, at, $"the record there is damaged, and an intact one follows at {next}");
        }
        return at;
    }

    private static bool TryDecode(ReadOnlySpan<byte> bytes, out ReadOnlySpan<byte> payload)
    {
        payload = default;
        if (bytes.Length < HeaderBytes || BinaryPrimitives.ReadUInt32LittleEndian(bytes) != Magic)
            return false;
        var payloadBytes = BinaryPrimitives.ReadInt32LittleEndian(bytes[4..]);
        if (payloadBytes < 0 || payloadBytes > bytes.Length - HeaderBytes)
            return false;
        payload = bytes.Slice(HeaderBytes, payloadBytes);
        return Checksum(bytes[..8], payload) == BinaryPrimitives.ReadUInt32LittleEndian(bytes[8..]);
    }

    private static uint Checksum(ReadOnlySpan<byte> head, ReadOnlySpan<byte> payload)
    {
        var sum = BitOperations.Crc32C(uint.MaxValue, BinaryPrimitives.ReadUInt64LittleEndian(head));
        for (; payload.Length >= sizeof(ulong); payload = payload[sizeof(ulong)..])
            sum = BitOperations.Crc32C(sum, BinaryPrimitives.ReadUInt64LittleEndian(payload));
        foreach (var one in payload)
            sum = BitOperations.Crc32C(sum, one);
        return ~sum;
    }
}

/// <summary>The embedded coordinator's file is damaged in a part that had been durable.</summary>
internal sealed class CorruptCoordinatorFileException(string path, long offset, string reason)
    : IOException($"The coordinator's file '{path}' is damaged at byte {offset}: {reason}. It was not changed.");
