using KvCluster.Disk;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Maintenance;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>Records applied as one state after a crash, in the order of their keys, give what they give one by one.</summary>
public sealed class GatheredChangesTests
{
    /// <summary>
    /// Keys are put and deleted again and again, with values of all sizes, and begin with the same bytes or do not. Ranges, sets and lives come in between,
    /// which see what was gathered before them. Some of it is behind a checkpoint, so that leaves are deltas.
    /// </summary>
    [Fact]
    public void Records_Gathered_GiveWhatTheyGiveOneByOne() => Seeds.Run(20, random =>
    {
        using var oneByOne = new Replica();
        using var gathering = new Replica();
        var prefix = new byte[random.Next(3) * 5];
        var hasLives = random.Next(3) == 0;
        var last = 0ul;
        for (var state = 0; state < 4; state++)
        {
            var bodies = new List<byte[]>();
            for (var records = random.Next(1, 40); records > 0; records--)
                bodies.Add(NewBody(random, prefix, hasLives, ref last));
            oneByOne.Apply(bodies, last, gathered: null);
            gathering.Apply(bodies, last, new GatheredChanges(random.Next(4_000), bytesMax: 1 << random.Next(8, 20)));
            Assert.Equal(oneByOne.Digest(), gathering.Digest());
            if (random.Next(2) == 0)
                gathering.Checkpoint();
        }
    });

    private static byte[] NewBody(Random random, byte[] prefix, bool hasLives, ref ulong last)
    {
        var payload = new ByteBuffer(0);
        var count = random.Next(1, 60);
        var isMixed = random.Next(4) == 0;
        for (var operation = 0; operation < count; operation++)
            AddOperation(payload, random, prefix, isMixed, hasLives && isMixed);
        var previous = new RecordRef(new Etag(1, last), default, 0, 0, 0, RecordFlags.None);
        last += (ulong)count;
        return RecordBody.Encode(previous, RecordFlags.None, 1, count, wallTimeMicroseconds: 5, payload.Written, out _, shardTimeMicroseconds: 7);
    }

    private static void AddOperation(ByteBuffer payload, Random random, byte[] prefix, bool isMixed, bool hasLives)
    {
        var key = NewKey(random, prefix);
        switch (random.Next(isMixed ? 14 : 10))
        {
            case < 7:
                Operations.Put(payload, key, NewValue(random));
                break;
            case < 9:
                Operations.Delete(payload, key);
                break;
            case 9:
                Operations.DeleteOwned(payload, key);
                break;
            case 10:
                var other = NewKey(random, prefix);
                var isBefore = key.AsSpan().SequenceCompareTo(other) < 0;
                Operations.DeleteRange(payload, isBefore ? key : other, isBefore ? other : key);
                break;
            case 11:
                Operations.SetMember(payload, OperationCode.SetAdd, key, NewKey(random, prefix));
                break;
            case 12 when hasLives:
                Operations.Touch(payload, key, (ulong)random.Next(2));
                break;
            default:
                Operations.Put(payload, key, NewValue(random), hasLives ? new KeyLife(ExpiryMilliseconds: 1_000, Owner: default) : default);
                break;
        }
    }

    // Few, and some of them differ only behind the bytes by which they are sorted first, or in zeros at their end.
    private static byte[] NewKey(Random random, byte[] prefix) =>
        [.. prefix, (byte)random.Next(1, 4), .. new byte[random.Next(12)], .. random.Next(3) == 0 ? (byte[])[] : [(byte)random.Next(20)]];

    private static byte[] NewValue(Random random)
    {
        var value = new byte[random.Next(12) switch { 0 => random.Next(20_000), 1 => 0, _ => random.Next(60, 120) }];
        random.NextBytes(value);
        return value;
    }

    /// <summary>The trees of a replica.</summary>
    private sealed class Replica : IDisposable
    {
        private readonly PageStore _pages = PageStore.Create(new SimulatedDisk(), "data", new PageStoreOptions { MapBytes = 1L << 30 }, new byte[16]);

        public void Apply(List<byte[]> bodies, ulong last, GatheredChanges? gathered)
        {
            var batch = _pages.Begin();
            foreach (var body in bodies)
                RecordApplier.Apply(batch, body, gathered);
            gathered?.ApplyTo(batch);
            _pages.Roots.Seal(batch, new Etag(1, last));
            _pages.Roots.Publish(new Etag(1, last));
            _pages.Verify();
        }

        public void Checkpoint()
        {
            if (_pages.BeginCheckpoint(etag => new CheckpointPosition(etag, new JournalPosition(1, 4_096), 1), Etag.MaxValue) is not { } checkpoint)
                return;
            checkpoint.Write();
            _pages.FinishCheckpoint(checkpoint);
        }

        public byte[] Digest()
        {
            using var snapshot = _pages.Roots.OpenSnapshot();
            return TreeDigest.Of(snapshot);
        }

        public void Dispose() => _pages.Dispose();
    }
}
