using System.Buffers.Binary;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Journal;
using KvCluster.Tests.Fuzzing;
using KvCluster.Tests.Storage.Store;

namespace KvCluster.Tests.Storage.Journal;

/// <summary>Compressed payloads: made by the system's library, read by our code.</summary>
public sealed class RecordPayloadTests
{
    // The examples follow lz4_Block_format.md.
    [Theory]
    [InlineData("00", "")]
    [InlineData("50" + "6162636465", "6162636465")]
    [InlineData("1A" + "61" + "0100" + "50" + "6161616161", "6161616161616161616161616161616161616161")]
    [InlineData("30" + "616263" + "0300" + "50" + "6161616161", "616263" + "61626361" + "6161616161")]
    public void Decompress_Block_GivesItsBytes(string block, string bytes)
    {
        var result = new byte[bytes.Length / 2];
        Assert.True(Lz4.TryDecompress(Convert.FromHexString(block), result));
        Assert.Equal(bytes, Convert.ToHexString(result));
    }

    [Fact]
    public void Decompress_LongLengths_AreRead()
    {
        var literals = Enumerable.Range(0, 273).Select(static at => (byte)at).ToArray();
        // 273 = 15 + 255 + 3 literals, then 15 + 255 + 0 + 4 bytes from 2 before, then an end without literals.
        byte[] block = [0xFF, 0xFF, 3, .. literals, 2, 0, 0xFF, 0, 0];
        var result = new byte[273 + 274];
        Assert.True(Lz4.TryDecompress(block, result));
        Assert.Equal([.. literals, .. Enumerable.Range(0, 274).Select(at => literals[271 + (at % 2)])], result);
    }

    [Theory]
    [InlineData("", 0)]
    [InlineData("50" + "61626364", 5)]
    [InlineData("50" + "6162636465", 4)]
    [InlineData("50" + "6162636465", 6)]
    [InlineData("F0", 15)]
    [InlineData("F0FFFFFF", 1000)]
    [InlineData("1A" + "61" + "0000" + "50" + "6161616161", 20)]
    [InlineData("1A" + "61" + "0200" + "50" + "6161616161", 20)]
    [InlineData("1A" + "61" + "01", 20)]
    [InlineData("1A" + "61" + "0100", 15)]
    [InlineData("1F" + "61" + "0100" + "FF", 400)]
    public void Decompress_NoBlockOfThisLength_IsRefused(string block, int length) =>
        Assert.False(Lz4.TryDecompress(Convert.FromHexString(block), new byte[length]));

    [CompressionFact]
    public void Compressed_ByTheLibrary_IsReadBack() => Seeds.Run(300, random =>
    {
        var operations = Repetitive(random, RecordEnvelope.BlockBytes + random.Next(200_000));
        var stored = new byte[operations.Length];
        var length = RecordPayload.Compress(operations, stored);
        Assert.InRange(length, 0, operations.Length - RecordEnvelope.BlockBytes);
        if (length == 0)
            return;
        var body = RecordBody.Encode(default, RecordFlags.Lz4, 1, 1, 0, stored.AsSpan(0, length), out _);
        using var payload = new RecordPayload(body);
        Assert.True(payload.Operations.SequenceEqual(operations));
    });

    // The bodies' checksums are right: the writer of such a body has a bug, or is newer.
    [CompressionFact]
    public void Compressed_Changed_IsUnreadableOrOtherBytes() => Seeds.Run(300, random =>
    {
        var operations = Repetitive(random, (3 * RecordEnvelope.BlockBytes) + random.Next(10_000));
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

    [CompressionFact]
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

    private static byte[] Repetitive(Random random, int length)
    {
        var bytes = new byte[length];
        var repeated = Mutation.RandomBytes(random, 1 + random.Next(300));
        for (var at = 0; at < length;)
        {
            if (random.Next(4) > 0)
                repeated.AsSpan(0, Math.Min(repeated.Length, length - at)).CopyTo(bytes.AsSpan(at));
            else
                random.NextBytes(bytes.AsSpan(at, Math.Min(repeated.Length, length - at)));
            at += repeated.Length;
        }
        return bytes;
    }

    private sealed class CompressionFactAttribute : FactAttribute
    {
        public CompressionFactAttribute() => Skip = Lz4.CanCompress ? null : "liblz4.so.1 is not on this machine.";
    }
}
