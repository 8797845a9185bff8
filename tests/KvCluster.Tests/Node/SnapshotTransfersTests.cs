using KvCluster.Disk;
using KvCluster.Internal.V1;
using KvCluster.Node.Shards.Snapshots;
using KvCluster.Replication.Log;
using KvCluster.Storage;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Snapshots;
using KvCluster.Storage.Threads;
using KvCluster.Tests.Storage.Store;
using Event = KvCluster.Replication.Protocol.Event;

namespace KvCluster.Tests.Node;

/// <summary>How a replica's driver handles snapshots: off the writer thread, and whatever happens, the replica keeps working.</summary>
public sealed class SnapshotTransfersTests : IDisposable
{
    private static readonly ReplicaId Receiver = new(2);
    private readonly ReplicaBench _leader = new(new(1));
    private readonly ReplicaBench _follower = new(Receiver);
    private readonly StepExecutor _disk = new();
    private readonly StepExecutor _writer = new();
    private readonly List<Event> _told = [];
    private readonly List<Frame> _sent = [];
    private readonly SnapshotTransfers _sender;
    private readonly SnapshotTransfers _receiver;
    private ReplicaStore? _used;
    private bool _isInstalled;

    public SnapshotTransfersTests()
    {
        _leader.Lead(1);
        _leader.Put("key", new string('v', 100));
        _leader.Commit(_leader.Store.Log.Last.Etag);
        var done = _leader.Store.Checkpoints.RequestAsync();
        _leader.Run();
        Assert.True(done.IsCompletedSuccessfully);
        _sender = Transfers(_leader, static _ => Assert.Fail("A sender must not install a store."));
        _receiver = Transfers(_follower, store => _used = store);
    }

    public void Dispose()
    {
        _used?.Dispose();
        _leader.Dispose();
        _follower.Dispose();
    }

    // Chunks were read and written on the writer thread, which other shards share. Their heartbeats waited for every megabyte of a snapshot.
    [Fact]
    public void Transfer_FromTheFirstChunkToTheSwitch_DoesNotUseTheDiskOnTheWriterThread()
    {
        var (calls, heartbeats) = (0, 0);
        foreach (var bench in (ReplicaBench[])[_leader, _follower])
        {
            bench.Disk.Fault = call =>
            {
                Assert.False(_writer.IsRunning, $"{call} on the writer thread.");
                // A heartbeat of another shard, which arrives while the disk is busy.
                _writer.Post(new WorkAction(() => heartbeats++));
                while (_writer.RunOne())
                {
                }
                calls++;
                return DiskFault.None;
            };
        }
        Frame frame = null!;
        OnWriter(() => frame = Begin().Frame);
        OnWriter(() => _sender.SendChunk(frame, int.MaxValue, _sent.Add));
        OnWriter(() => _receiver.Store(Assert.Single(_sent).SnapshotChunk, ReplicaBench.DirectoryPath));
        OnWriter(() => _receiver.Verify(NameOf(frame), _follower.Store.Durable.Control));
        Assert.True(Assert.IsType<Event.SnapshotVerified>(_told[^1]).IsWhole);
        OnWriter(() => _receiver.Install(_follower.Store.Durable.Control with { Committed = NameOf(frame).Etag }, () => _isInstalled = true));
        RunAll();
        Assert.True(_isInstalled);
        Assert.True(calls > 20, $"Only {calls} calls to the disk.");
        Assert.Equal(calls, heartbeats);
        Assert.Equal(NameOf(frame).Etag, _used!.Pages.Roots.PublishedEtag);

        void OnWriter(Action action)
        {
            _writer.Post(new WorkAction(action));
            RunDisk();
        }
    }

    [Fact]
    public void SendChunk_CheckpointReleased_SendsNothing()
    {
        var (source, frame) = Begin();
        _sender.SendChunk(frame, (int)source.BytesTotal, _sent.Add);
        _sender.Close(Receiver);
        RunDisk();
        _sender.SendChunk(frame, (int)source.BytesTotal, _sent.Add);
        RunDisk();
        Assert.Empty(_sent);
    }

    [Fact]
    public void Install_DiskFullWhenTheStateIsOpened_WaitsForRoomAndContinues()
    {
        var frame = Received();
        _receiver.Verify(NameOf(frame), _follower.Store.Durable.Control);
        RunDisk();
        _follower.Disk.Refuse = (operation, path) => operation == "Resize" ? new StorageIoException(operation, path, "no space left", isDiskFull: true) : null;
        _receiver.Install(_follower.Store.Durable.Control with { Committed = NameOf(frame).Etag }, () => _isInstalled = true);
        for (var look = 0; look < 3; look++)
        {
            RunAll();
            _follower.Time.Advance(TimeSpan.FromSeconds(1));
        }
        Assert.False(_isInstalled);
        _follower.Disk.Refuse = null;
        RunAll();
        _follower.Time.Advance(TimeSpan.FromSeconds(1));
        RunAll();
        Assert.True(_isInstalled);
        Assert.Equal(NameOf(frame).Etag, _used!.Pages.Roots.PublishedEtag);
    }

    // Requests for a checkpoint never ended: the old store was stopped, and no new one took its place while the disk was full.
    [Fact]
    public void Install_DiskFullWhenTheStateIsOpened_EndsRequestsForCheckpoints()
    {
        var frame = Received();
        _receiver.Verify(NameOf(frame), _follower.Store.Durable.Control);
        RunDisk();
        _follower.Disk.Refuse = (operation, path) => operation == "Resize" ? new StorageIoException(operation, path, "no space left", isDiskFull: true) : null;
        _receiver.Install(_follower.Store.Durable.Control with { Committed = NameOf(frame).Etag }, () => _isInstalled = true);
        RunDisk();
        _follower.Run();
        // The store is stopped, and nothing has looked for space yet.
        var before = _follower.Store.Checkpoints.RequestAsync();
        _follower.Run();
        Assert.False(before.IsCompleted);
        RunAll();
        var whileItWaits = _follower.Store.Checkpoints.RequestAsync();
        RunAll();
        foreach (var checkpoint in (Task[])[before, whileItWaits])
            Assert.True(Assert.IsType<StorageIoException>(checkpoint.Exception?.InnerException).IsDiskFull);
        _follower.Disk.Refuse = null;
        _follower.Time.Advance(TimeSpan.FromSeconds(1));
        RunAll();
        Assert.True(_isInstalled);
    }

    [Fact]
    public void Verify_PageOfAMaliciousPeer_FailsOnlyTheSnapshot()
    {
        // All checksums are valid, but the content of the page is not.
        var frame = Received();
        var sound = frame.SnapshotChunk.Data.ToByteArray();
        var refused = 0;
        for (var seed = 1; seed <= 200; seed++)
        {
            _told.Clear();
            frame.SnapshotChunk.Data = Google.Protobuf.ByteString.CopyFrom(WithAnotherRoot(sound, new Random(seed)));
            _receiver.Store(frame.SnapshotChunk, ReplicaBench.DirectoryPath);
            _receiver.Verify(NameOf(frame), _follower.Store.Durable.Control);
            RunDisk();
            if (_told[^1] is Event.SnapshotFailed { Fault: var fault })
            {
                refused++;
                Assert.Equal(SnapshotFault.Damaged, fault);
                Assert.DoesNotContain("incoming", _follower.Disk.List(ReplicaBench.DirectoryPath));
            }
            else
            {
                Assert.True(Assert.IsType<Event.SnapshotVerified>(_told[^1]).IsWhole, $"page {seed}");
            }
        }
        Assert.True(refused > 50, $"Only {refused} of 200 snapshots were refused.");
    }

    private static LogPosition NameOf(Frame frame) => frame.SnapshotChunk.Covers.FromWire();

    // Changes a few bytes of the tree's only page and adapts the checksums of that page and of both meta pages.
    private static byte[] WithAnotherRoot(byte[] stream, Random random)
    {
        var bytes = stream.ToArray();
        var table = SnapshotStream.Decode(bytes.AsSpan(0, (int)SnapshotStream.PrefixBytesOf(SnapshotStream.ReadRunCount(bytes, ""))), "");
        var metas = (int)table.PrefixBytes;
        Assert.True(MetaPage.TryDecode(bytes.AsSpan(metas, Page.Bytes), "") is not null);
        var number = MetaPage.TryDecode(bytes.AsSpan(metas, Page.Bytes), "")!.Trees[0].Link.Reference.Number;
        var at = metas;
        foreach (var run in table.Runs)
        {
            if (number >= run.First && number < run.First + run.Count)
            {
                at += (int)(number - run.First) * Page.Bytes;
                break;
            }
            at += (int)run.Count * Page.Bytes;
        }
        var page = bytes.AsSpan(at, Page.Bytes);
        for (var change = random.Next(1, 8); change > 0; change--)
        {
            // Mostly in the header and the entries after it.
            page[random.Next(4, random.Next(4) == 0 ? Page.Bytes : 100)] = (byte)random.Next(256);
        }
        var checksum = Crc32C.Of(page[sizeof(uint)..]);
        BitConverter.TryWriteBytes(page, checksum);
        for (var number2 = 0; number2 < 2; number2++)
        {
            var meta = MetaPage.TryDecode(bytes.AsSpan(metas + (number2 * Page.Bytes), Page.Bytes), "")!;
            meta.Trees[0].Link.Checksum = checksum;
            meta.Encode(bytes.AsSpan(metas + (number2 * Page.Bytes), Page.Bytes));
        }
        return bytes;
    }

    private SnapshotTransfers Transfers(ReplicaBench bench, Action<ReplicaStore?> use) => new(
        bench.Context with { Checkpoints = _disk, Writer = _writer },
        _told.Add,
        action => _writer.Post(new WorkAction(action)),
        quiet =>
        {
            bench.Store.Stop(quiet);
            return true;
        },
        full => bench.Store.Checkpoints.EndRequests(full),
        use,
        static failure => Assert.Fail($"The replica fails: {failure}"));

    private (SnapshotSource Source, Frame Frame) Begin()
    {
        var source = _leader.Store.Checkpoints.OpenSource();
        var covers = _sender.Send(Receiver, source);
        return (
            source, new Frame { ReceiverId = Receiver, SnapshotChunk = new SnapshotChunk { Covers = covers.ToWire(), BytesTotal = (ulong)source.BytesTotal } });
    }

    private Frame Received()
    {
        var (source, frame) = Begin();
        _sender.SendChunk(frame, (int)source.BytesTotal, _sent.Add);
        RunDisk();
        _receiver.Store(frame.SnapshotChunk, ReplicaBench.DirectoryPath);
        RunDisk();
        return frame;
    }

    private void RunDisk()
    {
        while (_writer.RunOne() || _disk.RunOne())
        {
        }
    }

    private void RunAll()
    {
        for (var round = 0; round < 10; round++)
        {
            RunDisk();
            _follower.Run();
        }
    }
}
