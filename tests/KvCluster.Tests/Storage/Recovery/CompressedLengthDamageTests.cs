using KvCluster.Disk;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Maintenance;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Snapshots;
using KvCluster.Storage.Transactions;
using KvCluster.Tests.Storage.Pages;
using KvCluster.Tests.Storage.Store;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Storage.Recovery;

/// <summary>
/// Memory for a compressed value is taken by the length that its cell records, and a checksum only proves that the length is what was written. Whoever reads
/// the page first, a length that cannot be right is damage before any memory is taken for it.
/// </summary>
public sealed class CompressedLengthDamageTests
{
    private const int HeaderBytes = 3;

    /// <summary>What a reader may allocate before it refuses: less than each length of <see cref="Lengths"/> that is greater than the right one.</summary>
    private const long AllocatedBytesMax = 1 << 20;

    private static readonly PageStoreOptions _options = new() { MapBytes = 1 << 28 };

    /// <summary>By the number of compressed bytes.</summary>
    private static readonly Dictionary<string, Func<int, int>> Lengths = new()
    {
        ["huge"] = static _ => int.MaxValue,
        ["longer than any value"] = static _ => Page.ValueBytesMax + 1,
        ["longer than the bytes can give"] = static bytes => Math.Max((bytes * 255) + 1, (int)Math.Min(Page.ValueBytesMax, bytes * 4_000L)),
        ["zero"] = static _ => 0,
        ["negative"] = static _ => -1,
        ["the least"] = static _ => int.MinValue,
        ["less than the bytes"] = static bytes => bytes - 1,
        ["as long as the bytes"] = static bytes => bytes,
    };

    private static readonly Dictionary<string, Action<PageStore>> Readers = new()
    {
        ["get"] = static store => Read(store, static snapshot => snapshot.TryGet(TreeId.Kv, ByteKeys.Of(1), out _)),
        ["scan"] = static store => Read(store, static snapshot =>
        {
            using var cursor = snapshot.Cursor(TreeId.Kv);
            Assert.True(cursor.MoveNext());
            _ = cursor.Value;
        }),
        ["scan back"] = static store => Read(store, static snapshot =>
        {
            using var cursor = snapshot.Cursor(TreeId.Kv);
            while (cursor.MovePrevious())
                _ = cursor.Value;
        }),
        ["lengths"] = static store => Read(store, static snapshot =>
        {
            using var cursor = snapshot.Cursor(TreeId.Kv);
            Assert.True(cursor.MoveNext());
            Assert.InRange(cursor.ValueLength, 0, Page.ValueBytesMax);
        }),
        ["change of the leaf"] = static store => store.Apply(static batch => batch.Put(TreeId.Kv, ByteKeys.Of(2), [1], [2])),
        ["full check"] = static store => store.Verify(),
        ["scrub"] = static store =>
        {
            var walk = new ScrubWalk(store);
            while (!walk.Step(long.MaxValue))
            {
            }
        },
        ["digest"] = static store => Read(store, static snapshot => TreeDigest.Of(snapshot)),
    };

    public static TheoryData<string> ReaderNames => new(Readers.Keys);

    [Theory]
    [MemberData(nameof(ReaderNames))]
    public void Length_ThatCannotBeRight_IsDamageBeforeMemoryIsTakenForIt(string reader)
    {
        // In a leaf, divided between a leaf and a run, and in a run alone.
        foreach (var valueBytes in (int[])[1_000, 30_000, 40_000])
            RefusesEach(reader, valueBytes);
    }

    /// <summary>A follower checks what it receives before it uses any of it, and keeps the state that it has.</summary>
    [Fact]
    public void Snapshot_WithALengthThatCannotBeRight_IsRefused()
    {
        using var leader = new ReplicaBench(
            new(1), StoreBench.SmallOptions with { Pages = StoreBench.SmallOptions.Pages with { CompressesValues = true } });
        using var follower = new ReplicaBench(new(2));
        leader.Lead(1);
        _ = leader.Put("key", new string('v', 1_000));
        leader.Run();
        leader.Commit(leader.Store.Log.Last.Etag);
        var done = leader.Store.Checkpoints.RequestAsync();
        leader.Run();
        Assert.True(done.IsCompletedSuccessfully);
        using var source = leader.Store.Checkpoints.OpenSource();
        var stream = new byte[source.BytesTotal];
        Assert.Equal(stream.Length, source.Read(stream, 0));
        var prefix = (int)source.PrefixBytes;
        var table = SnapshotStream.Decode(stream.AsSpan(0, prefix), "a test");
        Assert.Null(Refusal(stream));
        foreach (var (what, length) in Lengths)
        {
            var file = new byte[table.FilePages * Page.Bytes];
            Copy((place, at, bytes) => stream.AsSpan(at, bytes).CopyTo(file.AsSpan(place)));
            CompressedDamage.RecordLength(file, length);
            var forged = (byte[])stream.Clone();
            Copy((place, at, bytes) => file.AsSpan(place, bytes).CopyTo(forged.AsSpan(at)));
            var before = GC.GetAllocatedBytesForCurrentThread();
            var refusal = Refusal(forged);
            var allocated = GC.GetAllocatedBytesForCurrentThread() - before;
            Assert.True(refusal?.Contains("entry 0 has a compressed value of", StringComparison.Ordinal) == true, $"{what}: {refusal}");
            Assert.True(allocated < AllocatedBytesMax * 4, $"{what}: {allocated} bytes allocated.");
        }

        // Each run of pages, with its place in the file and in the stream.
        void Copy(Action<int, int, int> copy)
        {
            var at = prefix;
            foreach (var run in table.Runs)
            {
                var bytes = (int)run.Count * Page.Bytes;
                copy((int)run.First * Page.Bytes, at, bytes);
                at += bytes;
            }
        }

        string? Refusal(byte[] bytes)
        {
            using var installer = new SnapshotInstaller(
                follower.Context, ReplicaBench.DirectoryPath, source.Covers.Etag, source.Covers.ChainChecksum, source.BytesTotal);
            try
            {
                installer.Store(bytes);
                installer.Complete(follower.Store.Durable.Control);
                return null;
            }
            catch (CorruptStoreException refusal)
            {
                return refusal.Message;
            }
            finally
            {
                installer.Discard();
            }
        }
    }

    /// <summary>
    /// The program that embeds the store is told what is damaged by an exception of the store, whether the open reads the page first or the scrub that a store
    /// begins with which was not closed.
    /// </summary>
    [Fact]
    public async Task EmbeddedStore_WithALengthThatCannotBeRight_IsNotOpened()
    {
        using var directory = new TemporaryDirectory();
        await using (var store = KvStore.Open(directory.Path))
            await store.WriteAsync(new KvBatch().Put(await store.CreateTreeAsync("tree"), "key"u8, CompressedValueTests.Text(1, 1_000)));
        var options = new StoreOptions { Pages = new PageStoreOptions { CompressesValues = true } };
        using (var engine = StandaloneStore.Open(
            LocalDisk.Instance, Path.Combine(directory.Path, "store"), options, TimeProvider.System, NullLogger.Instance))
        {
            // The answer says that what was written before has been applied.
            Assert.Equal(WriteOutcome.Applied, (await engine.TryWrite(WriteRequest.Rent())!.Value).Outcome);
            await engine.Store.Checkpoints.RequestAsync();
        }
        var data = Assert.Single(Directory.EnumerateFiles(directory.Path, "data", SearchOption.AllDirectories));
        var sound = await File.ReadAllBytesAsync(data);
        foreach (var (what, length) in Lengths)
        {
            var file = (byte[])sound.Clone();
            CompressedDamage.RecordLength(file, length);
            await File.WriteAllBytesAsync(data, file);
            var told = Assert.ThrowsAny<KvStoreException>(() => KvStore.Open(directory.Path)).ToString();
            Assert.True(told.Contains("has a compressed value of", StringComparison.Ordinal), $"{what}: {told}");
        }
    }

    private static void RefusesEach(string reader, int valueBytes)
    {
        using var disk = new SimulatedDisk();
        using (var store = PageStore.Create(disk, "data", _options with { CompressesValues = true }, new byte[16]))
        {
            store.Apply(batch =>
            {
                var text = CompressedValueTests.Text(1, valueBytes);
                batch.Put(TreeId.Kv, ByteKeys.Of(1), text.AsSpan(0, HeaderBytes), text.AsSpan(HeaderBytes));
                batch.Put(TreeId.Kv, ByteKeys.Of(2), [1], [1]);
            });
            store.CheckpointAll();
        }
        var sound = disk.ReadAll("data");
        using (var store = PageStore.Open(disk, "data", _options))
            Readers[reader](store);
        foreach (var (what, length) in Lengths)
        {
            var file = (byte[])sound.Clone();
            CompressedDamage.RecordLength(file, length);
            disk.WriteAll("data", file);
            using var store = PageStore.Open(disk, "data", _options);
            var damages = 0;
            store.Space.Damaged = _ => damages++;
            var before = GC.GetAllocatedBytesForCurrentThread();
            var damage = Assert.Throws<CorruptStoreException>(() => Readers[reader](store));
            var allocated = GC.GetAllocatedBytesForCurrentThread() - before;
            Assert.True(damage.Message.Contains("entry 0 has a compressed value of", StringComparison.Ordinal), $"{what}: {damage.Message}");
            Assert.True(damages == 1 && allocated < AllocatedBytesMax, $"{what}: told {damages} times, {allocated} bytes allocated.");
        }
    }

    private static void Read(PageStore store, Action<ReadSnapshot> read)
    {
        using var snapshot = store.Roots.OpenSnapshot();
        read(snapshot);
    }
}
