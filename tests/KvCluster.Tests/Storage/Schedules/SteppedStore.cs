using KvCluster.Disk;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Pages;
using KvCluster.Tests.Storage.Schedules.Stepped;

namespace KvCluster.Tests.Storage.Schedules;

/// <summary>
/// A data file under a <see cref="Schedule"/>, whose readers compare what they see with what was put before the state that they read was published. Made from a
/// file with a checkpoint of some leaves.
/// </summary>
internal sealed class SteppedStore : IDisposable
{
    /// <summary>Enough for a few leaves below one branch.</summary>
    private const int Keys = 200;

    private const int ValueBytes = 150;
    private const string Path = "data";

    private static readonly Lazy<SimulatedDisk> _base = new(MakeBase);
    private readonly SimulatedDisk _disk = _base.Value.Copy();

    /// <summary>For each published state the value of each key.</summary>
    private readonly Dictionary<Etag, byte[]> _published = [];
    private byte[] _newest = new byte[Keys];

    /// <param name="olderBytesMax">See <see cref="PageStoreOptions.OlderBytesMax"/>.</param>
    public SteppedStore(long olderBytesMax)
    {
        Pages = PageStore.Open(_disk, Path, Options(olderBytesMax));
        FreedPages.Space = Pages.Space;
        _published.Add(Pages.Roots.PublishedEtag, _newest);
    }

    public PageStore Pages { get; }

    /// <summary>Gives some keys a new value, in one batch that is published. Writer.</summary>
    public void Put(params ReadOnlySpan<int> keys)
    {
        Seal(keys);
        Schedule.Operation();
        Publish();
        Schedule.Operation();
    }

    /// <summary>The same without publishing.</summary>
    public void Seal(params ReadOnlySpan<int> keys)
    {
        var batch = Pages.Begin();
        _newest = [.. _newest];
        foreach (var key in keys)
            Put(batch, key, ++_newest[key]);
        var last = Pages.Roots.NewestEtag;
        Pages.Roots.Seal(batch, last with { Change = last.Change + 1 });
        _published.Add(Pages.Roots.NewestEtag, _newest);
    }

    /// <summary>Publishes all that is sealed.</summary>
    public void Publish() => Pages.Roots.Publish(Pages.Roots.NewestEtag);

    /// <summary>Freezes the published state. Writer.</summary>
    public Checkpoint Freeze() =>
        Pages.BeginCheckpoint(static etag => new CheckpointPosition(etag, new JournalPosition(etag.Change, 4096), (uint)etag.Change), Etag.MaxValue)!;

    /// <summary>The steps of a checkpoint's end, with this done between them. Writer.</summary>
    public void Finish(Checkpoint checkpoint, Action between)
    {
        while (!Pages.FinishStep(checkpoint))
        {
            Schedule.Operation();
            between();
        }
    }

    /// <summary>Frees what can be freed. Writer.</summary>
    public void Release()
    {
        do
            Schedule.Operation();
        while (Pages.ReleaseSome());
    }

    /// <summary>A reader of some keys. Any thread.</summary>
    public void Read(params ReadOnlySpan<int> keys)
    {
        using var snapshot = Pages.Roots.OpenSnapshot();
        Schedule.Operation();
        var expected = _published[snapshot.Etag];
        foreach (var key in keys)
        {
            Assert.True(snapshot.TryGet(TreeId.Kv, Key(key), out var value), $"A reader of {snapshot.Etag} does not find key {key}.");
            Check(key, value, expected);
            Schedule.Operation();
            // What it was given stays as it was while it holds the snapshot.
            Check(key, value, expected);
        }
        using var cursor = snapshot.Cursor(TreeId.Kv, Key(keys[0]), Key(keys[0] + 3));
        for (var key = keys[0]; cursor.MoveNext(); key++)
        {
            Assert.Equal(Key(key), cursor.Key);
            Check(key, cursor.Value, expected);
            Schedule.Operation();
        }
    }

    /// <summary>
    /// Nobody reads any more: with the next checkpoints no memory is in use, each page of the file is either reached or free, and the file has what was put.
    /// </summary>
    public void CheckAtEnd()
    {
        for (var checkpoint = 0; checkpoint < 2; checkpoint++)
        {
            Put(checkpoint);
            var begun = Freeze();
            begun.Write();
            Finish(begun, static () => { });
            Release();
        }
        Assert.Equal((0, 0), (Pages.ScratchBytes, Pages.PinnedBytes));
        Pages.Verify();
        Read([.. Enumerable.Range(0, Keys - 3)]);
    }

    public void Dispose()
    {
        Pages.Dispose();
        _disk.Dispose();
    }

    private static PageStoreOptions Options(long olderBytesMax) => new()
    {
        MapBytes = 1 << 30, DeltaBytesMax = ScratchPool.BlockBytesMax, StaysWhole = null, StepPages = 2, OlderBytesMax = olderBytesMax, SnapshotsMax = 16,
    };

    private static SimulatedDisk MakeBase()
    {
        var disk = new SimulatedDisk();
        using var store = PageStore.Create(disk, Path, Options(0), new byte[16]);
        disk.SyncDirectory("");
        var batch = store.Begin();
        for (var key = 0; key < Keys; key++)
            Put(batch, key, 0);
        store.Roots.Seal(batch, new Etag(1, 1));
        store.Roots.Publish(new Etag(1, 1));
        var checkpoint = store.BeginCheckpoint(static etag => new CheckpointPosition(etag, new JournalPosition(1, 4096), 1), Etag.MaxValue)!;
        checkpoint.Write();
        store.FinishCheckpoint(checkpoint);
        return disk;
    }

    private static void Put(KvCluster.Storage.Trees.WriteBatch batch, int key, byte number) => batch.Put(TreeId.Kv, Key(key), Value(key, number));

    private static byte[] Key(int key) => [(byte)'k', (byte)key];

    private static byte[] Value(int key, byte number)
    {
        var value = new byte[ValueBytes];
        value.AsSpan().Fill((byte)(1 + key));
        value[0] = number;
        return value;
    }

    private static void Check(int key, ReadOnlySpan<byte> value, byte[] expected)
    {
        if (!value.SequenceEqual(Value(key, expected[key])))
            Assert.Fail($"A reader finds {Convert.ToHexString(value[..Math.Min(4, value.Length)])}... for key {key}, of which value {expected[key]} was put.");
    }
}
