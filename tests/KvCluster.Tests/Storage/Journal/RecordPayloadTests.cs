using System.Buffers.Binary;
using KvCluster.Storage.Journal;
using KvCluster.Tests.Storage.Store;

namespace KvCluster.Tests.Storage.Journal;

/// <summary>Compressed payloads of records.</summary>
public sealed class RecordPayloadTests
{
    [Fact]
    public void Compressed_Operations_AreReadBack() => Seeds.Run(300, random =>
    {
        var operations = Lz4Tests.Repetitive(random, RecordEnvelope.BlockBytes + random.Next(200_000));
        var stored = new byte[operations.Length];
        var length = RecordPayload.Compress(operations, stored);
        Assert.InRange(length, 0, operations.Length - RecordEnvelope.BlockBytes);
        if (length == 0)
            return;
        var body = RecordBody.Encode(default, RecordFlags.Lz4, 1, 1, 0, stored.AsSpan(0, length), out _);
        using var payload = new RecordPayload(body);
        Assert.True(payload.Operations.SequenceEqual(operations));
    });

    /// <summary>The writer spent a millisecond for each megabyte of values that were compressed already.</summary>
    [Theory]
    [InlineData(0, true)]
    [InlineData(1, false)]
    [InlineData(5, true)]
    public void Compress_ManyOperations_IsTriedOnlyIfASampleBecomesShorter(int emptySixth, bool isCompressed)
    {
        const int SixthBytes = 200 << 10;
        var operations = new byte[6 * SixthBytes];
        new Random(1).NextBytes(operations);
        // Samples are at both ends and at the thirds. The empty part has one, or lies between two.
        var margin = isCompressed ? 0 : 20 << 10;
        operations.AsSpan((emptySixth * SixthBytes) + margin, SixthBytes - (2 * margin)).Clear();
        Assert.Equal(isCompressed, RecordPayload.Compress(operations, new byte[operations.Length]) > 0);
    }

    // The bodies' checksums are right: the writer of such a body has a bug, or is newer.
    [Fact]
    public void Compressed_Changed_IsUnreadableOrOtherBytes() => Seeds.Run(300, random =>
    {
        var operations = Lz4Tests.Repetitive(random, (3 * RecordEnvelope.BlockBytes) + random.Next(10_000));
        var stored = new byte[operations.Length];
        var length = RecordPayload.Compress(operations, stored);
        if (length == 0)
            return;
        for (var change = 0; change < 20; change++)
        {
            var changed = stored.AsSpan(0, random.Next(4) == 0 ? random.Next(length) : length).ToArray();
            if (changed.Length > 0)
                changed[random.Next(changed.Length)] ^= (byte)(1 << random.Next(8));
            try
            {
                using var payload = new RecordPayload(RecordBody.Encode(default, RecordFlags.Lz4, 1, 1, 0, changed, out _));
                Assert.Equal(BinaryPrimitives.ReadInt32LittleEndian(changed), payload.Operations.Length);
            }
            catch (UnreadableRecordException)
            {
                // The replica stops and reports the reason.
            }
        }
    });

    [Fact]
    public void LargeRecord_Compressed_IsAppliedByFollowerAndRecovery() => Assert.All([true, false], static compresses =>
    {
        using var leader = new ReplicaBench(new(1), StoreBench.SmallOptions with { CompressRecords = compresses });
        using var follower = new ReplicaBench(new(2), StoreBench.SmallOptions);
        leader.Lead(1);
        leader.Append(request =>
        {
            for (var key = 0; key < 100; key++)
                request.Put([(byte)'k', (byte)key], new byte[500]);
        });
        var last = leader.Store.Log.Last;
        Assert.Equal(compresses, (last.Flags & RecordFlags.Lz4) != 0);
        Assert.Equal(compresses, last.BodyBytes < 10_000);
        follower.Follow(leader);
        follower.Commit(last.Etag);
        follower.Run();
        Assert.Equal(leader.Digest(), follower.Digest());
        follower.Reopen();
        follower.Commit(last.Etag);
        follower.Run();
        Assert.Equal(leader.Digest(), follower.Digest());
        Assert.Equal(100ul, follower.Store.Statistics.Keys);
    });
}
