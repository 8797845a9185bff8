using Google.Protobuf;
using Google.Rpc;
using Grpc.Core;
using KvCluster.V1;
using Xunit.Abstractions;

namespace KvCluster.Tests.Node;

/// <summary>
/// Bounds of ranges one byte longer than a key. The least key after another one is that key and a zero byte, which was refused as too long behind the longest
/// keys: whoever reads page by page could not go on.
/// </summary>
public sealed class LongBoundTests(KvApiTests.OneNode fixture, ITestOutputHelper output) : IClassFixture<KvApiTests.OneNode>
{
    private readonly Kv.KvClient _kv = fixture.Cluster.KvOf(1);

    [Fact]
    public async Task EveryRange_BeginsAndEndsBehindTheLongestKey()
    {
        var (first, second, third) = (Longest("r", 'a'), Longest("r", 'b'), Longest("r", 'c'));
        foreach (var key in (ByteString[])[first, second, third])
            await _kv.PutAsync(new PutRequest { Key = key, Value = first });
        Assert.Equal([second, third], await ScanAsync(new ScanRequest { Start = After(first), End = After(third) }));
        Assert.Equal([first], await ScanAsync(new ScanRequest { Start = first, End = After(first) }));
        Assert.Equal([second, first], await ScanAsync(new ScanRequest { Start = first, End = After(second), Reverse = true }));
        var list = await _kv.ListAsync(new ListRequest { Start = After(first), End = After(second) });
        Assert.Equal([second], list.Entries.Select(entry => entry.Key));
        // A bound that is no key and a zero byte: the greatest key below it is its beginning.
        list = await _kv.ListAsync(new ListRequest { Start = second, End = ByteString.CopyFrom([.. third.Span, 1]), Reverse = true });
        Assert.Equal([third, second], list.Entries.Select(entry => entry.Key));
        await using var client = new KvCluster.Client.KvClient(
            new KvCluster.Client.KvClientOptions { Endpoints = [fixture.Cluster.AddressOf(1)], Timeout = Eventually.Limit });
        var page = await client.ListAsync(new KvCluster.Client.KvList { Start = second.Memory, End = (byte[])[.. third.Span, 1], Reverse = true });
        Assert.Equal([third, second], page.Entries.Select(entry => ByteString.CopyFrom(entry.Key.Span)));
        Assert.Equal(2ul, (await _kv.CountAsync(new CountRequest { Start = After(first), End = After(third) })).Count);
        var transact = await _kv.TransactAsync(new TransactRequest
        {
            Conditions =
            {
                new Condition { Key = After(first), Range = new RangeCondition { End = After(third), Keys = 2 } },
                new Condition { Key = third, Range = new RangeCondition { End = After(third), Keys = 1 } },
            },
            Success = { new Operation { Scan = new RangeOperation { Start = After(first), End = After(second) } },
                new Operation { DeleteRange = new RangeOperation { Start = After(first), End = After(second) } } },
        });
        Assert.Equal((true, 1), (transact.Succeeded, transact.Results[0].Entries.Count));
        using var watch = _kv.Watch(new WatchRequest { Start = After(second), End = After(third), Initial = true });
        Assert.True(await watch.ResponseStream.MoveNext(CancellationToken.None));
        Assert.Equal([third], watch.ResponseStream.Current.Events.Select(one => one.Key));
        Assert.Equal(1ul, (await _kv.DeleteRangeAsync(new DeleteRangeRequest { Start = After(second), End = After(third) })).Deleted);
        Assert.Equal(1ul, (await _kv.DeleteRangeAsync(new DeleteRangeRequest { Start = first, End = After(first) })).Deleted);
        var tooLong = ByteString.CopyFrom([.. After(first).Span, 0]);
        foreach (var call in (Func<Task>[])[
            async () => await _kv.CountAsync(new CountRequest { End = tooLong }),
            async () => await _kv.ListAsync(new ListRequest { Start = tooLong }),
            async () => await _kv.DeleteRangeAsync(new DeleteRangeRequest { Start = tooLong }),
            async () => await _kv.CountAsync(new CountRequest { Prefix = After(first) }),
        ])
            Assert.Equal("KEY_TOO_LONG", (await Assert.ThrowsAsync<RpcException>(call)).GetRpcStatus()!.GetDetail<ErrorInfo>()!.Reason);
    }

    /// <summary>The session that identifies a change is opened by a key. Where the range begins with none it was refused: KEY_EMPTY or KEY_TOO_LONG.</summary>
    [Fact]
    public async Task RangeThatBeginsWithNoKey_CanBeTheFirstChangeOfAClient()
    {
        var options = new KvCluster.Client.KvClientOptions { Endpoints = [fixture.Cluster.AddressOf(1)], Timeout = Eventually.Limit };
        var (first, second) = (Longest("s", 'a'), Longest("s", 'b'));
        foreach (var key in (ByteString[])[first, second])
            await _kv.PutAsync(new PutRequest { Key = key, Value = first });
        await using (var client = new KvCluster.Client.KvClient(options))
        {
            var behind = new KvCluster.Client.KvRange { Start = After(first).Memory, End = After(second).Memory };
            Assert.Equal(1ul, (await client.DeleteRangeAsync(behind)).Deleted);
        }
        await using (var client = new KvCluster.Client.KvClient(options))
        {
            Assert.NotEqual(0ul, (await client.DeleteRangeAsync(new KvCluster.Client.KvRange { All = true })).Deleted);
            Assert.Equal(0, await client.CountAsync(default));
        }
    }

    /// <summary>There is no key behind it, so a range there is empty and does not begin anew with the first key.</summary>
    [Fact]
    public async Task RangeBehindTheGreatestKey_IsEmpty()
    {
        var greatest = ByteString.CopyFrom([.. Enumerable.Repeat(byte.MaxValue, KvLimits.KeyBytesMax)]);
        await _kv.PutAsync(new PutRequest { Key = greatest });
        Assert.Equal([greatest], await ScanAsync(new ScanRequest { Start = greatest }));
        Assert.Empty(await ScanAsync(new ScanRequest { Start = After(greatest) }));
        Assert.Equal(0ul, (await _kv.CountAsync(new CountRequest { Start = After(greatest) })).Count);
        Assert.Equal(0ul, (await _kv.DeleteRangeAsync(new DeleteRangeRequest { Start = After(greatest) })).Deleted);
        var behind = new RangeOperation { Start = After(greatest) };
        var transact = await _kv.TransactAsync(new TransactRequest
        {
            Conditions = { new Condition { Key = After(greatest), Range = new RangeCondition { Keys = 0 } },
                new Condition { Key = greatest, Range = new RangeCondition { End = After(greatest), Keys = 1 } } },
            Success = { new Operation { Scan = behind }, new Operation { DeleteRange = behind } },
        });
        Assert.Equal((true, 0, 0L), (transact.Succeeded, transact.Results[0].Entries.Count, transact.Results[1].Number));
        Assert.Equal(1ul, (await _kv.DeleteRangeAsync(new DeleteRangeRequest { Start = greatest, End = After(greatest) })).Deleted);
    }

    [Fact]
    public async Task PagesOfSets_BeginBehindTheLongestMember()
    {
        var key = Utf8($"set-{Guid.NewGuid():N}");
        var (first, second) = (ByteString.CopyFrom([.. Enumerable.Repeat((byte)'a', KvLimits.MemberBytesMax)]), Utf8("b"));
        await _kv.SetAddAsync(new SetAddRequest { Key = key, Members = { first, second } });
        Assert.Equal([second], (await _kv.SetScanAsync(new SetScanRequest { Key = key, Start = After(first) })).Members);
        Assert.Equal([second], (await _kv.SetIntersectAsync(new SetIntersectRequest { Keys = { key }, Start = After(first), Limit = 10 })).Members);
        // The limit that is named is that of a start, and not of a member.
        var tooLong = After(After(first));
        await Refusal.ExpectAsync(
            () => _kv.SetScanAsync(new SetScanRequest { Key = key, Start = tooLong }).ResponseAsync, StatusCode.InvalidArgument, "MEMBER_TOO_LONG",
            "1025 bytes");
        await Refusal.ExpectAsync(
            () => _kv.SetIntersectAsync(new SetIntersectRequest { Keys = { key }, Start = tooLong, Limit = 10 }).ResponseAsync, StatusCode.InvalidArgument,
            "MEMBER_TOO_LONG", "1025 bytes");
    }

    /// <summary>Against the order of keys: a bound that was shortened divides the keys as it did before.</summary>
    [Fact]
    public void Shortened_DividesAllKeysAsTheBoundDid()
    {
        var random = Seeds.Next(output);
        for (var round = 0; round < 2_000; round++)
        {
            var (from, to, key) = (Near(random, KvLimits.BoundBytesMax), Near(random, KvLimits.BoundBytesMax), Near(random, KvLimits.KeyBytesMax));
            if (random.Next(10) == 0)
                to = [];
            var (first, end) = KeyBounds.Shortened(from, to);
            Assert.InRange(Math.Max(first.Length, end.Length), 0, KvLimits.KeyBytesMax);
            Assert.Equal(IsWithin(key, from, to), IsWithin(key, first, end));
        }

        static bool IsWithin(byte[] key, byte[] from, byte[] to) =>
            key.AsSpan().SequenceCompareTo(from) >= 0 && (to.Length == 0 || key.AsSpan().SequenceCompareTo(to) < 0);

        // Few different bytes, and lengths about the longest, so that keys meet bounds.
        static byte[] Near(Random random, int most)
        {
            var bytes = new byte[most - random.Next(3)];
            var filler = random.Next(2) == 0 ? byte.MaxValue : (byte)'m';
            Array.Fill(bytes, filler);
            bytes[^1] = (byte)(random.Next(3) switch { 0 => 0, 1 => 'm', _ => byte.MaxValue });
            bytes[^2] = random.Next(2) == 0 ? filler : (byte)'m';
            return bytes;
        }
    }

    private async Task<List<ByteString>> ScanAsync(ScanRequest scan)
    {
        var keys = new List<ByteString>();
        for (var more = true; more;)
        {
            using var call = _kv.Scan(scan);
            more = false;
            while (await call.ResponseStream.MoveNext(CancellationToken.None))
            {
                keys.AddRange(call.ResponseStream.Current.Entries.Select(entry => entry.Key));
                more = call.ResponseStream.Current.HasNextStart;
                scan.Start = more ? call.ResponseStream.Current.NextStart : scan.Start;
            }
        }
        return keys;
    }

    private static ByteString Longest(string head, char last) => Utf8(head + new string('k', KvLimits.KeyBytesMax - head.Length - 1) + last);

    private static ByteString After(ByteString key) => ByteString.CopyFrom([.. key.Span, 0]);

    private static ByteString Utf8(string text) => ByteString.CopyFromUtf8(text);
}
