using System.Text;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Journal;

/// <summary>Pins the bytes that FORMAT.md describes. A change here is a new format version.</summary>
public sealed class FormatTests
{
    private static readonly RecordRef Previous = new(new Etag(0x0102, 0x0304), default, 0xA1B2C3D4, 0, 0, RecordFlags.None);

    [Fact]
    public void Crc32C_CheckValue() => Assert.Equal(0xE3069283u, Crc32C.Of("123456789"u8));

    [Fact]
    public void Crc32C_AnyLength_EqualsTheSumOfItsBits() => Seeds.Run(40, random =>
    {
        var bytes = new byte[random.Next(4) == 0 ? random.Next(100) : random.Next(20_000)];
        random.NextBytes(bytes);
        var from = random.Next(Math.Min(bytes.Length, 9) + 1);
        var state = uint.MaxValue;
        foreach (var value in bytes.AsSpan(from))
        {
            state ^= value;
            for (var bit = 0; bit < 8; bit++)
                state = (state >> 1) ^ ((state & 1) * 0x82F63B78);
        }
        Assert.Equal(~state, Crc32C.Of(bytes.AsSpan(from)));
    });

    [Fact]
    public void Body_Bytes_ArePinned()
    {
        var body = RecordBody.Encode(Previous, RecordFlags.None, 0x0103, 2, 0x1122334455667788, [1, 1, 0x6B, 0, 1, 0x76, 2, 1, 0x6B], out var made);
        Assert.Equal(
            "4B565231" + "55000000" + "0000" + "0000" + "02000000"
            + "0301000000000000" + "0503000000000000" + "0603000000000000"
            + "0201000000000000" + "0403000000000000" + "D4C3B2A1" + "00000000"
            + "8877665544332211" + "01016B000176" + "02016B"
            + Convert.ToHexString(BitConverter.GetBytes(Crc32C.Of(body.AsSpan(..^4)))),
            Convert.ToHexString(body));
        Assert.True(RecordBody.TryVerify(body, out var header));
        Assert.Equal(header, made);
        Assert.Equal(
            new RecordRef(new Etag(0x0103, 0x0306), Previous.Etag, Crc32C.Of(body.AsSpan(..^4)), Previous.Checksum, body.Length, RecordFlags.None), header);
        Assert.True(header.Follows(Previous));
    }

    [Fact]
    public void Body_WithAShardTime_HasItBehindTheHeader()
    {
        var body = RecordBody.Encode(
            Previous, RecordFlags.ShardTime, 0x0103, 1, 0x1122334455667788, [2, 1, 0x6B], out var made, shardTimeMicroseconds: 0x0102030405060708);
        Assert.Equal(
            "4B565231" + "57000000" + "0002" + "0000" + "01000000"
            + "0301000000000000" + "0503000000000000" + "0503000000000000"
            + "0201000000000000" + "0403000000000000" + "D4C3B2A1" + "00000000"
            + "8877665544332211" + "0807060504030201" + "02016B"
            + Convert.ToHexString(BitConverter.GetBytes(Crc32C.Of(body.AsSpan(..^4)))),
            Convert.ToHexString(body));
        Assert.True(RecordBody.TryVerify(body, out var header));
        Assert.Equal(header, made);
        Assert.Equal((0x1122334455667788, 0x0102030405060708), (RecordBody.WallTimeMicroseconds(body), RecordBody.ShardTimeMicroseconds(body)));
        using (var payload = new RecordPayload(body))
            Assert.Equal([2, 1, 0x6B], payload.Operations.ToArray());
        // Format level 1 knows one time, by which lives are counted.
        var before = RecordBody.Encode(Previous, RecordFlags.None, 0x0103, 1, 5, [2, 1, 0x6B], out _);
        Assert.Equal((0, 5), (RecordBody.WallTimeMicroseconds(before), RecordBody.ShardTimeMicroseconds(before)));
        // Too short for the time that its flags promise.
        var cut = RecordBody.Encode(Previous, RecordFlags.None, 0x0103, 0, 5, [0, 0, 0], out _);
        cut[9] = 2;
        Assert.False(RecordBody.TryReadHeader(cut, out _));
    }

    [Fact]
    public void Body_WithoutOperations_TakesOneChange()
    {
        var body = RecordBody.Encode(Previous, RecordFlags.EpochOpen, 0x0103, 0, 0, [], out _);
        Assert.Equal((0x0305ul, 0x0305ul, 76), (RecordBody.FirstChange(body), RecordBody.LastChange(body), body.Length));
    }

    [Fact]
    public void Body_AnyFlippedBit_IsNotVerified()
    {
        var body = RecordBody.Encode(Previous, RecordFlags.None, 0x0103, 1, 5, [2, 1, 0x6B], out _);
        for (var bit = 0; bit < body.Length * 8; bit++)
        {
            body[bit / 8] ^= (byte)(1 << (bit % 8));
            Assert.False(RecordBody.TryVerify(body, out _), $"bit {bit}");
            body[bit / 8] ^= (byte)(1 << (bit % 8));
        }
        Assert.False(RecordBody.TryVerify(body.AsSpan(..^1), out _));
    }

    [Fact]
    public void Envelope_Bytes_ArePinned()
    {
        var bytes = new byte[RecordEnvelope.Bytes];
        var envelope = new RecordEnvelope(0x1122334455667788, new Etag(0x0A, 0x0B), 0x100, 0xA1B2C3D4);
        envelope.WriteTo(bytes);
        Assert.Equal(
            "4B564531" + "00010000" + "8877665544332211" + "0A00000000000000" + "0B00000000000000" + "D4C3B2A1"
            + Convert.ToHexString(BitConverter.GetBytes(Crc32C.Of(bytes.AsSpan(..36)))),
            Convert.ToHexString(bytes));
        Assert.True(RecordEnvelope.TryRead(bytes, out var read));
        Assert.Equal(envelope, read);
        bytes[20] ^= 1;
        Assert.False(RecordEnvelope.TryRead(bytes, out _));
    }

    [Fact]
    public void SegmentHeader_Bytes_ArePinned()
    {
        var block = new byte[SegmentHeader.BlockBytes];
        var header = new SegmentHeader(7, 0x1122334455667788, new(0x99), new(3), 6, 0x55, 0x2000, new Etag(1, 2), 0xA1B2C3D4);
        header.WriteTo(block, SegmentHeader.Version);
        Assert.Equal(
            "4B565331" + "06000000" + "0700000000000000" + "8877665544332211" + "9900000000000000" + "03000000" + "00000000"
            + "0600000000000000" + "5500000000000000" + "0020000000000000" + "0100000000000000" + "0200000000000000" + "D4C3B2A1" + "00000000"
            + Convert.ToHexString(BitConverter.GetBytes(Crc32C.Of(block.AsSpan(..88)))),
            Convert.ToHexString(block.AsSpan(..92)));
        Assert.True(SegmentHeader.TryRead(block, "segment", out var read));
        // A block of which only a part arrived is no header: nothing was appended behind it.
        foreach (var place in (int[])[92, 511, 512, SegmentHeader.BlockBytes - 1])
        {
            var torn = block.ToArray();
            torn[place] = 1;
            Assert.False(SegmentHeader.TryRead(torn, "segment", out _));
        }
        Assert.Equal(header, read);
        // As in a cluster of format level 1, and in stores that were kept.
        header.WriteTo(block, SegmentHeader.VersionFor(new StoreOptions { HasShardTimes = false }));
        Assert.Equal(5, block[4]);
        Assert.True(SegmentHeader.TryRead(block, "segment", out read));
        Assert.Equal(header, read);
        Assert.Equal("0000000000000007.journal", Path.GetFileName(SegmentName.PathOf("journal", 7)));
    }

    [Fact]
    public void ControlSlot_Bytes_ArePinned()
    {
        var slot = new byte[ControlFile.SlotBytes];
        var state = new ControlState
        {
            ReplicaId = new(0x1122334455667788),
            Shard = new(3),
            PromisedEpoch = 4,
            PromisedLeader = new(5),
            PromisedIncarnation = 6,
            Committed = new Etag(7, 8),
            Acknowledged = new Etag(9, 10),
            Generation = 11,
            CoordinatorRevision = 12,
            LeaseLongestMs = 13,
            Removed = true,
            ClusterHash = 14,
            Recovery = 16,
        };
        ControlFile.Encode(slot, state, 15);
        Assert.Equal(
            "4B564331" + "01000000" + "0F00000000000000" + "8877665544332211" + "03000000" + "01000000"
            + "0400000000000000" + "0500000000000000" + "0600000000000000" + "0700000000000000" + "0800000000000000"
            + "0900000000000000" + "0A00000000000000" + "0B00000000000000" + "0C00000000000000" + "0D00000000000000" + "0E00000000000000"
            + "1000000000000000" + Convert.ToHexString(BitConverter.GetBytes(Crc32C.Of(slot.AsSpan(..128)))),
            Convert.ToHexString(slot.AsSpan(..132)));
        Assert.True(ControlFile.TryDecode(slot, "control", out var read, out var sequence));
        Assert.Equal((state, 15ul), (read, sequence));
    }

    [Fact]
    public void LeafValue_Bytes_ArePinned()
    {
        var stored = new byte[64];
        var count = KvValue.WriteHeader(stored, new Etag(3, 300), default);
        Assert.Equal("0003AC02", Convert.ToHexString(stored.AsSpan(..count)));
        count = KvValue.WriteHeader(stored, new Etag(3, 300), new KeyLife(1, default));
        Assert.Equal("0103AC0201", Convert.ToHexString(stored.AsSpan(..count)));
        var life = new KeyLife(1, new Etag(2, 129));
        count = KvValue.WriteHeader(stored, new Etag(3, 300), life);
        Assert.Equal("0303AC0201028101", Convert.ToHexString(stored.AsSpan(..count)));
        stored[count] = 0x76;
        Assert.Equal("v"u8, KvValue.Read(stored.AsSpan(..(count + 1)), out var etag, out KeyLife read));
        Assert.Equal((new Etag(3, 300), life), (etag, read));
    }

    [Fact]
    public void OperationsOnLives_Bytes_ArePinned()
    {
        var payload = new ByteBuffer(16);
        Operations.Touch(payload, "k"u8, 77);
        Operations.Expire(payload, OperationCode.Expire, "k"u8, 77, new Etag(3, 300));
        Operations.Expire(payload, OperationCode.ForgetExpiry, "k"u8, 77, new Etag(3, 300));
        Operations.Put(payload, "n"u8, "v"u8, new KeyLife(0, new Etag(2, 1)), OperationCode.PutNumbered);
        Operations.DeleteOwned(payload, "k"u8);
        Operations.ForgetOwned(payload, new Etag(2, 1), new Etag(3, 300));
        Assert.Equal("0A016B4D" + "0B016B4D03AC02" + "0C016B4D03AC02" + "0D016E0202010176" + "0E016B" + "0F020103AC02", Convert.ToHexString(payload.Written));
    }

    [Fact]
    public void OperationsOnSets_Bytes_ArePinned()
    {
        var payload = new ByteBuffer(16);
        Operations.SetMember(payload, OperationCode.SetAdd, "s"u8, "one"u8);
        Operations.SetMember(payload, OperationCode.SetRemove, "s"u8, "two"u8);
        Operations.SetDelete(payload, "s"u8, "two"u8);
        Operations.SetDelete(payload, "s"u8, default);
        Assert.Equal("030173036F6E65" + "0401730374776F" + "0901730374776F" + "09017300", Convert.ToHexString(payload.Written));
        var reader = new OperationReader(payload.Written);
        foreach (var (code, member) in ((OperationCode, string)[])
            [(OperationCode.SetAdd, "one"), (OperationCode.SetRemove, "two"), (OperationCode.SetDelete, "two"), (OperationCode.SetDelete, "")])
        {
            Assert.True(reader.MoveNext());
            Assert.Equal((code, "s", member), (reader.Code, Encoding.ASCII.GetString(reader.Key), Encoding.ASCII.GetString(reader.Member)));
        }
        Assert.False(reader.MoveNext());
    }

    [Fact]
    public void UnknownVersion_OfHeaderOrSlot_IsReportedNotMisread()
    {
        var block = new byte[SegmentHeader.BlockBytes];
        new SegmentHeader(7, 1, new(1), new(1), 0, 0, 0, default, 0).WriteTo(block, SegmentHeader.Version);
        block[4] = 1;
        BitConverter.TryWriteBytes(block.AsSpan(88), Crc32C.Of(block.AsSpan(..88)));
        Assert.Contains(
            "version 1", Assert.Throws<FormatVersionException>(() => SegmentHeader.TryRead(block, "segment", out _)).Message, StringComparison.Ordinal);
    }
}
