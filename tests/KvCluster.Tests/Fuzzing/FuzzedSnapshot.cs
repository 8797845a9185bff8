using System.Buffers.Binary;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Snapshots;
using KvCluster.Tests.Storage.Store;

namespace KvCluster.Tests.Fuzzing;

/// <summary>
/// A whole snapshot stream with changes in pages of every kind and recomputed checksums, as from a malicious peer or one with failing memory. Either
/// it is refused and the old state is untouched, or the installed state can be read, written, checkpointed and opened again.
/// </summary>
internal static class FuzzedSnapshot
{
    private const int ChunkBytes = 50_000;

    private static readonly Lazy<Sound> _sound = new(Make);

    public static void Run(Random random)
    {
        var sound = _sound.Value;
        var bytes = Change(random, sound);
        using var receiver = new ReplicaBench(new(2));
        if (!TryInstall(sound, bytes, receiver))
        {
            receiver.Reopen();
            Assert.Equal(default, receiver.Store.Log.Last.Etag);
            return;
        }

        receiver.Reopen();
        Use(receiver, sound, random);
        receiver.Reopen();
        receiver.Store.Pages.Verify();
        _ = receiver.Digest();
    }

    // Branches, leaves, values on pages of their own, sessions, and free pages between them.
    private static Sound Make()
    {
        using var leader = new ReplicaBench(new(1));
        leader.Lead(1);
        for (var index = 0; index < 400; index++)
            leader.Put($"{new string('k', index % 40 * 10)}{index}", new string((char)('a' + (index % 26)), index % 60 == 0 ? 20_000 : 90));
        leader.OpenSession(5);
        Checkpoint(leader);
        for (var index = 0; index < 400; index += 7)
            leader.Append(request => request.Delete(StoreBench.Text($"{new string('k', index % 40 * 10)}{index}")));
        Checkpoint(leader);
        using var source = leader.Store.Checkpoints.OpenSource();
        var bytes = new byte[source.BytesTotal];
        for (var read = 0; read < bytes.Length;)
            read += source.Read(bytes.AsSpan(read), read);
        return new Sound(bytes, source.Covers.Etag, source.Covers.ChainChecksum, [.. Units(bytes, (int)source.PrefixBytes)]);
    }

    // The ranges that have a checksum of their own: a page, or the pages of one long value.
    private static IEnumerable<(int Offset, int Bytes)> Units(byte[] bytes, int first)
    {
        for (var offset = first; offset < bytes.Length;)
        {
            var length = Page.Bytes;
            while (offset + length < bytes.Length
                && BinaryPrimitives.ReadUInt32LittleEndian(bytes.AsSpan(offset)) != Crc32C.Of(bytes.AsSpan(offset + 4, length - 4)))
                length += Page.Bytes;
            yield return (offset, length);
            offset += length;
        }
    }

    private static byte[] Change(Random random, Sound sound)
    {
        var bytes = sound.Bytes.ToArray();
        for (var changes = random.Next(1, 3); changes > 0; changes--)
        {
            // The two meta pages are the first.
            var (offset, length) = sound.Units[random.Next(4) == 0 ? random.Next(2) : random.Next(sound.Units.Length)];
            var unit = bytes.AsSpan(offset, length);
            // A page may also be replaced by another one, of the same tree or not.
            var other = sound.Units[random.Next(sound.Units.Length)];
            var changed = random.Next(8) == 0 && other.Bytes == length ? bytes.AsSpan(other.Offset, length).ToArray()
                : Mutation.Of(random, unit, keepsLength: true, hot: Page.HeaderBytes + 128);
            changed.CopyTo(unit);
            BinaryPrimitives.WriteUInt32LittleEndian(unit, Crc32C.Of(unit[4..]));
        }

        return bytes;
    }

    private static bool TryInstall(Sound sound, byte[] bytes, ReplicaBench receiver)
    {
        using var installer = new SnapshotInstaller(receiver.Context, ReplicaBench.DirectoryPath, sound.Etag, sound.ChainChecksum, sound.Bytes.Length);
        try
        {
            for (var stored = 0; stored < bytes.Length; stored += ChunkBytes)
                installer.Store(bytes.AsSpan(stored, Math.Min(ChunkBytes, bytes.Length - stored)));
            installer.Complete(receiver.Store.Durable.Control);
        }
        catch (Exception told) when (told is CorruptStoreException or FormatVersionException)
        {
            installer.Discard();
            return false;
        }

        receiver.Store.Dispose();
        installer.SwitchIn(receiver.Store.Durable.Control with { Committed = sound.Etag, Acknowledged = sound.Etag });
        return true;
    }

    private static void Use(ReplicaBench receiver, Sound sound, Random random)
    {
        Assert.Equal(sound.Etag, receiver.Store.Log.Last.Etag);
        _ = receiver.Digest();
        _ = receiver.Sessions();
        receiver.Lead(2);
        for (var index = 0; index < 40; index++)
        {
            var key = $"{new string('k', random.Next(40) * 10)}{random.Next(400)}";
            receiver.Append(request =>
            {
                if (random.Next(3) == 0)
                    request.Delete(StoreBench.Text(key));
                else
                    request.Put(StoreBench.Text(key), new byte[random.Next(random.Next(10) == 0 ? 30_000 : 300)]);
            });
        }

        Checkpoint(receiver);
        receiver.Store.Pages.Verify();
    }

    private static void Checkpoint(ReplicaBench bench)
    {
        bench.Commit(bench.Store.Log.Last.Etag);
        var done = bench.Store.Checkpoints.RequestAsync();
        bench.Run();
        Assert.True(done.IsCompletedSuccessfully, $"{done.Exception}");
    }

    /// <summary>An unchanged stream.</summary>
    private sealed record Sound(byte[] Bytes, Etag Etag, uint ChainChecksum, (int Offset, int Bytes)[] Units);
}
