using KvCluster.Storage.Encoding;
using KvCluster.Storage.Maintenance;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Snapshots;
using KvCluster.Tests.Storage.Store;

namespace KvCluster.Tests.Storage.Recovery;

/// <summary>
/// A snapshot stream with any part of it damaged, swapped, missing, as in an older stream, cut short or continued is refused, or gives the state that its
/// sender pinned. A refusal leaves the old state as it is.
/// </summary>
public sealed class SnapshotStreamDamageTests : IDisposable
{
    private const int RunBytes = 16;
    private readonly ReplicaBench _leader = new(new(1), StoreBench.SmallOptions with { RetainedJournalBytes = 1 << 20 });
    private readonly ReplicaBench _follower = new(new(2));
    private readonly byte[] _older;
    private readonly byte[] _stream;
    private readonly SnapshotSource _source;
    private readonly SnapshotStream _decoded;

    public SnapshotStreamDamageTests()
    {
        _leader.Lead(1);
        Fill('a');
        using (var source = _leader.Store.Checkpoints.OpenSource())
            _older = Read(source);
        Fill('b');
        _source = _leader.Store.Checkpoints.OpenSource();
        _stream = Read(_source);
        _decoded = SnapshotStream.Decode(_stream.AsSpan(0, (int)_source.PrefixBytes), "a test");
        Assert.True(Installs(_stream));
    }

    public void Dispose()
    {
        _source.Dispose();
        _leader.Dispose();
        _follower.Dispose();
    }

    [Fact]
    public void Header_AnyByteDamaged_IsRefused()
    {
        foreach (var offset in Enumerable.Range(0, (int)_source.PrefixBytes).Where(offset => offset < SnapshotStream.HeaderBytes || offset % 8 == 0))
        {
            foreach (var damage in (byte[])[1, 0x80, 0xFF])
                Assert.False(Installs(Changed(stream => stream[offset] ^= damage)), $"Byte {offset} of the stream was changed, and it was installed.");
        }
    }

    [Fact]
    public void Page_DamagedSwappedMissingOrOlder_IsRefusedOrHarmless()
    {
        var (pages, found, tried) = ((_stream.Length - (int)_source.PrefixBytes) / Page.Bytes, 0, 0);
        for (var page = 0; page < pages; page++)
        {
            var (at, other) = (Place(page), Place((page + 1) % pages));
            Try($"a bit of page {page}", stream => stream[at + 4_000] ^= 1);
            Try($"page {page} missing", stream => stream.AsSpan(at, Page.Bytes).Clear());
            Try($"half of page {page} missing", stream => stream.AsSpan(at + (Page.Bytes / 2), Page.Bytes / 2).Clear());
            Try($"page {page} exchanged", stream =>
            {
                var kept = stream[at..(at + Page.Bytes)];
                stream.AsSpan(other, Page.Bytes).CopyTo(stream.AsSpan(at));
                kept.CopyTo(stream, other);
            });
            Try($"page {page} of an older stream", stream => _older.AsSpan(Math.Min(at, _older.Length - Page.Bytes), Page.Bytes).CopyTo(stream.AsSpan(at)));
        }
        // All but bytes of a page that nothing uses.
        Assert.True(found > tried * 0.9, $"Of {tried} damages {found} were found.");

        void Try(string story, Action<byte[]> damage)
        {
            var damaged = Changed(damage);
            tried++;
            if (!Installs(damaged, story))
                found++;
        }
    }

    [Fact]
    public void Stream_CutOrContinued_IsRefused()
    {
        foreach (var length in (int[])[0, 1, SnapshotStream.HeaderBytes - 1, SnapshotStream.HeaderBytes,
            (int)_source.PrefixBytes - RunBytes, (int)_source.PrefixBytes, Place(1), Place(2), Place(3) + 100, _stream.Length - Page.Bytes, _stream.Length - 1])
            Assert.False(Installs(_stream[..length]), $"A stream of {length} bytes was installed.");
        Assert.False(Installs([.. _stream, 0]));
        Assert.False(Installs([.. _stream, .. _stream.AsSpan(_stream.Length - Page.Bytes)]));
        Assert.False(Installs(_older));
    }

    /// <summary>A table that is itself intact may still list what it must not.</summary>
    [Fact]
    public void Table_WithOtherRunsAndItsOwnChecksum_IsRefused()
    {
        var runs = _decoded.Runs;
        Refused("without the last run", runs.SkipLast(1), _decoded.FilePages);
        Refused("of a longer file", runs, _decoded.FilePages + 1);
        Refused("of a shorter file", runs, _decoded.FilePages - 1);
        Refused("one page further", [.. runs.SkipLast(1), new PageRun(runs[^1].First + 1, runs[^1].Count)], _decoded.FilePages);
        Refused("with a page more", [.. runs.SkipLast(1), new PageRun(runs[^1].First, runs[^1].Count + 1)], _decoded.FilePages);
        Refused("in another order", runs.Reverse(), _decoded.FilePages);

        void Refused(string story, IEnumerable<PageRun> table, long filePages)
        {
            var prefix = new SnapshotStream(_decoded.Etag, _decoded.ChainChecksum, filePages, [.. table]).EncodePrefix();
            Assert.False(Installs([.. prefix, .. _stream.AsSpan((int)_source.PrefixBytes)], story), $"A stream {story} was installed.");
        }
    }

    private int Place(int page) => (int)_source.PrefixBytes + (page * Page.Bytes);

    private byte[] Changed(Action<byte[]> damage)
    {
        var stream = (byte[])_stream.Clone();
        damage(stream);
        return stream;
    }

    /// <summary>Whether a stream is accepted. If it is, the new state is the leader's; otherwise the old one is left.</summary>
    private bool Installs(byte[] stream, string story = "")
    {
        using var disk = _follower.Disk.Copy();
        var context = _follower.Context with { Files = disk };
        using var installer = new SnapshotInstaller(context, ReplicaBench.DirectoryPath, _source.Covers.Etag, _source.Covers.ChainChecksum, _source.BytesTotal);
        try
        {
            installer.Store(stream);
            installer.Complete(_follower.Store.Durable.Control);
        }
        catch (Exception refusal) when (refusal is CorruptStoreException or FormatVersionException)
        {
            installer.Discard();
            using var old = KvCluster.Storage.ReplicaStore.Open(context, ReplicaBench.DirectoryPath);
            Assert.Equal(default, old.Log.Last.Etag);
            return false;
        }
        installer.SwitchIn(_follower.Store.Durable.Control with { Committed = _source.Covers.Etag, Acknowledged = _source.Covers.Etag });
        using var store = KvCluster.Storage.ReplicaStore.Open(context, ReplicaBench.DirectoryPath);
        store.Pages.Verify();
        using var snapshot = store.OpenSnapshot();
        Assert.True(TreeDigest.Of(snapshot).AsSpan().SequenceEqual(_leader.Digest()), $"{story}: another state was installed.");
        return true;
    }

    private void Fill(char value)
    {
        for (var key = 0; key < 90; key++)
            _leader.Put($"key-{key}", new string(value, key % 30 == 0 ? 20_000 : 300));
        _leader.Commit(_leader.Store.Log.Last.Etag);
        var done = _leader.Store.Checkpoints.RequestAsync();
        _leader.Run();
        Assert.True(done.IsCompletedSuccessfully);
    }

    private static byte[] Read(SnapshotSource source)
    {
        var stream = new byte[source.BytesTotal];
        Assert.Equal(stream.Length, source.Read(stream, 0));
        return stream;
    }
}
