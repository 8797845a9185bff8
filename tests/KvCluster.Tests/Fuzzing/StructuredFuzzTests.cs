using System.Buffers.Binary;
using System.Globalization;
using Google.Protobuf;
using KvCluster.Node.Api.Changes;
using KvCluster.Node.Api.Reads;
using KvCluster.Storage.Control;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Snapshots;
using KvCluster.Storage.Transactions;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Tests.Fuzzing;

/// <summary>
/// Bytes from a disk or another process, changed by <see cref="Mutation"/> with recomputed checksums. Reading them is refused in the expected way or
/// gives sensible values, and nothing else happens. The cases are the same each time: 9,000 in all, 50,000 with KV_LONG=1. KV_FUZZ=N runs N new ones, from a
/// seed that is printed. KV_SEED=N repeats one case of a target.
/// </summary>
public sealed class StructuredFuzzTests
{
    private static readonly int CasesInAll = Seeds.IsLong ? 50_000 : 9_000;

    // A case of "install" receives, uses and reopens a whole store.
    private const int CasesPerInstall = 10;
    private const string Path = "fuzzed";
    private static readonly string[] _targets =
        ["exchange", "change", "operation", "condition", "results", "record", "segment", "control", "meta", "snapshot", "page", "install"];

    public static TheoryData<string> Targets => [.. _targets];

    [Theory]
    [MemberData(nameof(Targets))]
    public void ChangedBytes_AreRefusedOrReadConsistently(string target)
    {
        if (Seeds.Given is { } one)
        {
            RunCase(target, one);
            return;
        }

        var given = Environment.GetEnvironmentVariable("KV_FUZZ");
        var cases = (string.IsNullOrEmpty(given) ? CasesInAll : int.Parse(given, CultureInfo.InvariantCulture))
            / _targets.Length / (target == "install" ? CasesPerInstall : 1);
        var first = string.IsNullOrEmpty(given) ? 1 : Random.Shared.Next(1 << 30);
        for (var seed = first; seed < first + cases; seed++)
        {
            try
            {
                RunCase(target, seed);
            }
            catch (Exception failure)
            {
                throw new Xunit.Sdk.XunitException($"{target}, KV_SEED={seed}: {failure.Message}", failure);
            }
        }
    }

    private static void RunCase(string target, int seed)
    {
        var random = new Random(seed);
        switch (target)
        {
            case "exchange": Exchange(random); break;
            case "change": Change(random); break;
            case "operation": OperationOfARequest(random); break;
            case "condition": ConditionOfARequest(random); break;
            case "results": ResultsOfOperations(random); break;
            case "record": Record(random); break;
            case "segment": Segment(random); break;
            case "control": Control(random); break;
            case "meta": Meta(random); break;
            case "snapshot": Snapshot(random); break;
            case "install": FuzzedSnapshot.Run(random); break;
            default: FuzzedPage.Run(random); break;
        }
    }

    // Parsed as ExchangeServer does and then by the protobuf library. If both accept it, they must read the same.
    private static void Exchange(Random random)
    {
        var sound = new ExchangeRequest();
        for (var calls = random.Next(1, 4); calls > 0; calls--)
        {
            sound.Calls.Add(new Call
            {
                Id = (ulong)random.NextInt64(),
                Method = (Method)random.Next(6),
                Request = ByteString.CopyFrom(Mutation.RandomBytes(random, random.Next(40))),
                TimeoutMs = (uint)random.Next(),
                Shard = (uint)random.Next(3),
                Generation = (ulong)random.Next(3),
            });
        }

        var bytes = Mutation.Of(random, sound.ToByteArray(), keepsLength: false, hot: 24);
        var read = new List<(ulong, uint, string)>();
        try
        {
            var message = new WireReader(bytes);
            for (int field; (field = message.ReadField()) != 0;)
            {
                if (field == ExchangeRequest.CallsFieldNumber)
                    read.Add(ReadCall(message.ReadBytes()));
                else
                    message.Skip();
            }
        }
        catch (MalformedMessageException)
        {
            return;
        }

        if (TryParse(ExchangeRequest.Parser, bytes) is { } parsed)
            Assert.Equal(parsed.Calls.Select(call => (call.Id, (uint)call.Method, Convert.ToHexString(call.Request.Span))), read);
    }

    private static (ulong Id, uint Method, string Request) ReadCall(ReadOnlySpan<byte> call)
    {
        var head = CallHead.Read(call);
        return (head.Id, (uint)head.Method, Convert.ToHexString(head.Request));
    }

    private static void Change(Random random)
    {
        var sound = new PutRequest
        {
            Key = ByteString.CopyFrom(Mutation.RandomBytes(random, random.Next(20))),
            Value = ByteString.CopyFrom(Mutation.RandomBytes(random, random.Next(200))),
            RequestId = new RequestId { Session = ByteString.CopyFrom(Mutation.RandomBytes(random, 16)), Sequence = 3, LowestOpen = 2, Shard = 1 },
            TtlMs = (ulong)random.Next(),
            Owner = ByteString.CopyFrom(Mutation.RandomBytes(random, 16)),
            Sequence = random.Next(2) == 0,
        };
        var bytes = Mutation.Of(random, sound.ToByteArray(), keepsLength: false, hot: 8);
        SingleChange change;
        try
        {
            change = new SingleChange(bytes, ChangeLayout.Put);
            _ = ReadQuery.TryRead(bytes, out var query);
            _ = query.TryIn(new(new(1), 1), bytes, out _);
        }
        catch (MalformedMessageException)
        {
            return;
        }

        if (TryParse(PutRequest.Parser, bytes) is { } parsed)
        {
            Assert.True(
                change.Key.SequenceEqual(parsed.Key.Span) && change.Value.SequenceEqual(parsed.Value.Span) && change.Other.SequenceEqual(parsed.Owner.Span),
                "two parsers of one request disagree");
            Assert.Equal((parsed.HasTtlMs ? parsed.TtlMs : null, parsed.Sequence), (change.Number, change.IsFlagged));
        }
    }

    private static void OperationOfARequest(Random random)
    {
        var bytes = Mutation.Of(random, SomeOperation(random).ToByteArray(), keepsLength: false, hot: 8);
        OperationFields read;
        try
        {
            read = new OperationFields(bytes);
        }
        catch (MalformedMessageException)
        {
            return;
        }

        // A member of the oneof that occurs twice is merged by the library, and here the last one counts.
        if (TryParse(Operation.Parser, bytes) is not { } parsed || FieldsOf(bytes) > 1)
            return;
        Assert.Equal(parsed.OperationCase, read.Kind);
        var (key, value, end) = parsed.OperationCase switch
        {
            Operation.OperationOneofCase.Put => (parsed.Put.Key, parsed.Put.Value, ByteString.Empty),
            Operation.OperationOneofCase.Scan => (parsed.Scan.Start, ByteString.Empty, parsed.Scan.End),
            Operation.OperationOneofCase.DeleteRange => (parsed.DeleteRange.Start, ByteString.Empty, parsed.DeleteRange.End),
            Operation.OperationOneofCase.Increment => (parsed.Increment.Key, ByteString.Empty, ByteString.Empty),
            Operation.OperationOneofCase.SetAdd => (parsed.SetAdd.Key, parsed.SetAdd.Member, ByteString.Empty),
            _ => (null, null, null),
        };
        if (key is null)
            return;
        Assert.True(read.Key.SequenceEqual(key.Span) && read.Value.SequenceEqual(value!.Span) && read.End.SequenceEqual(end!.Span), "two parsers of one "
            + "operation disagree");
        Assert.Equal(
            (parsed.Increment?.By ?? 0, parsed.Put is { HasTtlMs: true } put ? put.TtlMs : null, parsed.Scan?.Limit ?? 0, parsed.Scan?.KeysOnly ?? false),
            (read.By, read.TtlMs, read.Limit, read.KeysOnly));
    }

    private static Operation SomeOperation(Random random)
    {
        var (key, other) =
            (ByteString.CopyFrom(Mutation.RandomBytes(random, random.Next(20))), ByteString.CopyFrom(Mutation.RandomBytes(random, random.Next(20))));
        return random.Next(5) switch
        {
            0 => new Operation { Put = new PutOperation { Key = key, Value = other, TtlMs = (ulong)random.Next(), Sequence = true } },
            1 => new Operation { Increment = new IncrementOperation { Key = key, By = random.NextInt64() - long.MaxValue / 2 } },
            2 => new Operation { Scan = new RangeOperation { Start = key, End = other, Limit = (uint)random.Next(2_000), KeysOnly = true } },
            3 => new Operation { DeleteRange = new RangeOperation { Start = key, End = other } },
            _ => new Operation { SetAdd = new SetOperation { Key = key, Member = other } },
        };
    }

    private static void ConditionOfARequest(Random random)
    {
        var (key, other) =
            (ByteString.CopyFrom(Mutation.RandomBytes(random, random.Next(20))), ByteString.CopyFrom(Mutation.RandomBytes(random, random.Next(20))));
        var etag = new V1.Etag { Epoch = (ulong)random.NextInt64(), Change = (ulong)random.NextInt64() };
        var relation = (V1.Relation)random.Next(6);
        var sound = random.Next(5) switch
        {
            0 => new Condition { Key = key, Etag = new EtagComparison { Relation = relation, Etag = etag } },
            1 => new Condition { Key = key, Value = new ValueComparison { Relation = relation, Value = other } },
            2 => new Condition { Key = key, Range = new RangeCondition { End = other, Keys = (ulong)random.Next(), EtagGreatest = etag } },
            3 => new Condition { Key = key, SetHas = other },
            _ => new Condition { Key = key, Exists = true },
        };
        var bytes = Mutation.Of(random, sound.ToByteArray(), keepsLength: false, hot: 8);
        ConditionFields read;
        try
        {
            read = new ConditionFields(bytes);
        }
        catch (MalformedMessageException)
        {
            return;
        }

        if (TryParse(Condition.Parser, bytes) is not { } parsed || FieldsOf(bytes) > 2)
            return;
        Assert.Equal(parsed.TestCase, read.Test);
        Assert.True(read.Key.SequenceEqual(parsed.Key.Span), "two parsers of one condition disagree");
        if (parsed.Range is { } range)
            Assert.Equal((range.HasKeys ? range.Keys : null, range.EtagGreatest is null), (read.Keys, read.Greatest is null));
    }

    private static void ResultsOfOperations(Random random)
    {
        var results = new OperationResults();
        for (var count = random.Next(1, 5); count > 0; count--)
        {
            for (var entries = random.Next(3); entries > 0; entries--)
                results.AddEntry(
                    Mutation.RandomBytes(random, random.Next(1, 20)), Mutation.RandomBytes(random, random.Next(20)), new Etag(3, (ulong)random.Next()));
            results.Add(
                new Etag(3, (ulong)random.Next(2)), random.Next(2) == 0 ? true : null, random.Next(2) == 0 ? random.NextInt64() : null, random.Next(2) == 0);
        }
        var bytes = Mutation.Of(random, results.Written.ToArray(), keepsLength: false, hot: 8);
        try
        {
            var message = new byte[OperationResultMessages.Size(bytes)];
            var writer = new WireWriter(message);
            OperationResultMessages.Write(ref writer, WriteResponse.ResultsFieldNumber, bytes);
            Assert.Equal(0, writer.Left);
            _ = WriteResponse.Parser.ParseFrom(message);
        }
        catch (CorruptStoreException)
        {
            // The replica stops and reports the reason.
        }
    }

    private static int FieldsOf(ReadOnlySpan<byte> message)
    {
        var count = 0;
        var reader = new WireReader(message);
        while (reader.ReadField() != 0)
        {
            reader.Skip();
            count++;
        }
        return count;
    }

    private static void Record(Random random)
    {
        var payload = new ByteBuffer(64);
        for (var operations = random.Next(4); operations >= 0; operations--)
        {
            if (random.Next(5) == 0)
                Operations.DeleteRange(payload, Mutation.RandomBytes(random, random.Next(20)), Mutation.RandomBytes(random, random.Next(20)));
            else if (random.Next(5) == 0)
                Operations.SetDelete(payload, Mutation.RandomBytes(random, random.Next(1, 20)), Mutation.RandomBytes(random, random.Next(20)));
            else if (random.Next(3) == 0)
                Operations.Delete(payload, Mutation.RandomBytes(random, random.Next(1, 20)));
            else
                Operations.Put(payload, Mutation.RandomBytes(random, random.Next(1, 20)), Mutation.RandomBytes(random, random.Next(60)), new KeyLife(
                    (ulong)random.Next(2) * 77, random.Next(4) == 0 ? new Etag(3, 9) : default));
        }

        payload.Append([(byte)OperationCode.Results]);
        payload.AppendWithLength(Mutation.RandomBytes(random, random.Next(48)));
        var bytes = Mutation.Of(
            random, RecordBody.Encode(default, RecordFlags.None, 3, 2, 5, payload.Written, out _), keepsLength: false, hot: RecordBody.HeaderBytes + 12);
        if (bytes.Length >= RecordBody.HeaderBytes + RecordBody.TrailerBytes)
        {
            if (random.Next(2) == 0)
                BinaryPrimitives.WriteInt32LittleEndian(bytes.AsSpan(4), bytes.Length);
            BinaryPrimitives.WriteUInt32LittleEndian(bytes.AsSpan(bytes.Length - sizeof(uint)), Crc32C.Of(bytes.AsSpan(0, bytes.Length - sizeof(uint))));
        }

        if (!RecordBody.TryVerify(bytes, out var header))
            return;
        Assert.Equal(bytes.Length, header.BodyBytes);
        try
        {
            var left = bytes.Length;
            using var opened = new RecordPayload(bytes);
            for (var reader = new OperationReader(opened.Operations); reader.MoveNext();)
            {
                Assert.True(left-- > 0, "more operations are read than there are bytes");
                if (reader.Code == OperationCode.Results)
                    ReadResults(reader.Results);
            }
        }
        catch (Exception told) when (told is UnreadableRecordException or CorruptStoreException)
        {
            // The replica stops and reports the reason.
        }
    }

    private static void ReadResults(ReadOnlySpan<byte> results)
    {
        var left = results.Length;
        for (var reader = new ResultsReader(results, new Etag(3, 5)); reader.MoveNext();)
            Assert.True(left-- > 0, "more results are read than there are bytes");
    }

    private static void Segment(Random random)
    {
        var block = new byte[SegmentHeader.BlockBytes];
        new SegmentHeader(7, SegmentHeader.IncarnationOf(7, (ulong)random.NextInt64()), new(11), new(2), 6, 5, 8_192, new Etag(2, 9), 13)
            .WriteTo(block, SegmentHeader.Version);
        var changed = Mutation.Of(random, block, keepsLength: true, hot: 88);
        BinaryPrimitives.WriteUInt32LittleEndian(changed.AsSpan(88), Crc32C.Of(changed.AsSpan(0, 88)));
        if (Accepts(() => SegmentHeader.TryRead(changed, Path, out var header) ? header : (SegmentHeader?)null) is { } read)
        {
            var again = new byte[SegmentHeader.BlockBytes];
            read.WriteTo(again, SegmentHeader.Version);
            Assert.True(SegmentHeader.TryRead(again, Path, out var same) && same == read);
        }

        var envelope = new byte[RecordEnvelope.Bytes];
        new RecordEnvelope(9, new Etag(1, 2), 100, 3).WriteTo(envelope);
        envelope = Mutation.Of(random, envelope, keepsLength: true, hot: 8);
        BinaryPrimitives.WriteUInt32LittleEndian(envelope.AsSpan(36), Crc32C.Of(envelope.AsSpan(0, 36)));
        if (RecordEnvelope.TryRead(envelope, out var found))
            Assert.InRange(found.BodyBytes, RecordBody.HeaderBytes + RecordBody.TrailerBytes, RecordBody.BytesMax);
    }

    private static void Control(Random random)
    {
        const int ChecksumOffset = 128;
        var slot = new byte[ControlFile.SlotBytes];
        ControlFile.Encode(
            slot,
            new ControlState
            {
                ReplicaId = new(11), Shard = new(2), PromisedEpoch = 5, PromisedLeader = new(22), Committed = new Etag(4, 8), LeaseLongestMs = 500
            },
            9);
        var changed = Mutation.Of(random, slot, keepsLength: true, hot: ChecksumOffset);
        BinaryPrimitives.WriteUInt32LittleEndian(changed.AsSpan(ChecksumOffset), Crc32C.Of(changed.AsSpan(0, ChecksumOffset)));
        if (Accepts(() => ControlFile.TryDecode(changed, Path, out var state, out var sequence) ? (state, sequence)
            : ((ControlState, ulong)?)null) is not var (state, sequence))
            return;
        var again = new byte[ControlFile.SlotBytes];
        ControlFile.Encode(again, state, sequence);
        Assert.True(ControlFile.TryDecode(again, Path, out var same, out var sameSequence) && same == state && sameSequence == sequence);
    }

    private static void Meta(Random random)
    {
        var page = new byte[Page.Bytes];
        new MetaPage
        {
            Revision = 8, Identity = 77, FilePages = 40, FreeDirectory = PageRef.ToFile(5),
            CheckpointPosition = new CheckpointPosition(new Etag(3, 4), new JournalPosition(1, 8_192), 6), Trees = new TreeRoot[StoreRoot.TreesMax]
        }.Encode(page);
        var changed = Mutation.Of(random, page, keepsLength: true, hot: 256);
        BinaryPrimitives.WriteUInt32LittleEndian(changed, Crc32C.Of(changed.AsSpan(4)));
        if (Accepts(() => MetaPage.TryDecode(changed, Path)) is not { } read)
            return;
        var again = new byte[Page.Bytes];
        read.Encode(again);
        var same = MetaPage.TryDecode(again, Path)!;
        Assert.True(same.CheckpointPosition == read.CheckpointPosition
            && same.Revision == read.Revision && same.FilePages == read.FilePages && same.FreeDirectory == read.FreeDirectory);
    }

    // A length beyond its bounds would become an offset in a file, so whatever is accepted must have consistent sums.
    private static void Snapshot(Random random)
    {
        var runs = new List<PageRun> { new(0, 2) };
        for (var next = 2L + random.Next(3); runs.Count < 6 && random.Next(5) != 0; next += random.Next(1, 4))
        {
            runs.Add(new PageRun(next, random.Next(1, 5)));
            next += runs[^1].Count;
        }

        var sound = new SnapshotStream(new Etag(3, 4), 5, runs[^1].First + runs[^1].Count, runs).EncodePrefix();
        var prefix = Mutation.Of(random, sound, keepsLength: true, hot: SnapshotStream.HeaderBytes);
        BinaryPrimitives.WriteUInt32LittleEndian(prefix.AsSpan(12), Crc32C.Of(prefix.AsSpan(SnapshotStream.HeaderBytes)));
        BinaryPrimitives.WriteUInt32LittleEndian(
            prefix.AsSpan(SnapshotStream.HeaderBytes - sizeof(uint)), Crc32C.Of(prefix.AsSpan(0, SnapshotStream.HeaderBytes - sizeof(uint))));
        var stream = Accepts(
            () => SnapshotStream.PrefixBytesOf(SnapshotStream.ReadRunCount(prefix, Path)) == prefix.Length ? SnapshotStream.Decode(prefix, Path) : null);
        if (stream is null)
            return;
        Assert.InRange(stream.BytesTotal, stream.PrefixBytes + Page.Bytes, stream.PrefixBytes + (stream.FilePages * Page.Bytes));
        for (var looks = 4; looks > 0; looks--)
        {
            var (offset, bytes) = stream.Locate(random.NextInt64(stream.PrefixBytes, stream.BytesTotal));
            Assert.True(offset >= 0 && bytes > 0 && offset + bytes <= stream.FilePages * Page.Bytes, $"bytes {offset} to {offset + bytes} of a file of "
                + $"{stream.FilePages} pages");
        }
    }

    // Null if it was refused in one of the ways that callers expect.
    private static T? Accepts<T>(Func<T?> read)
    {
        try
        {
            return read();
        }
        catch (Exception told) when (told is FormatVersionException or CorruptStoreException)
        {
            return default;
        }
    }

    private static T? TryParse<T>(MessageParser<T> parser, byte[] bytes)
        where T : class, IMessage<T>
    {
        try
        {
            return parser.ParseFrom(bytes);
        }
        catch (InvalidProtocolBufferException)
        {
            return null;
        }
    }
}
