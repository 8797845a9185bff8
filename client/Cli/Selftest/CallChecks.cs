using System.Globalization;
using KvCluster.Client;

namespace KvCluster.Cli.Selftest;

/// <summary>Checks of single calls: limits, conditions, sets and sequences.</summary>
internal static class CallChecks
{
    /// <summary>What is beyond a limit is refused by name, and nothing of it is applied; what is within is not.</summary>
    public static async Task LimitsAsync(SelftestRun run, CancellationToken stop)
    {
        var value = "v"u8.ToArray();
        var longest = run.Key("limits/").Concat(Enumerable.Repeat((byte)'k', KvLimits.KeyBytesMax)).Take(KvLimits.KeyBytesMax).ToArray();
        await SelftestRun.RepeatAsync(() => run.Client.PutAsync(longest, value, cancellationToken: stop).AsTask(), stop);
        SelftestFailure.Unless((await ReadAsync(run, longest, stop)).Found, $"a key of {longest.Length} bytes was put and is not there");
        await SelftestRun.RefusedAsync(
            "a key without bytes", "KEY_EMPTY", () => run.Client.PutAsync(Array.Empty<byte>(), value, cancellationToken: stop).AsTask(), stop);
        await SelftestRun.RefusedAsync(
            $"a key of {longest.Length + 1} bytes", "KEY_TOO_LONG",
            () => run.Client.PutAsync(longest.Append((byte)'k').ToArray(), value, cancellationToken: stop).AsTask(), stop);
        // If the node had cut the refused key after the last byte that is allowed, it would be the longest key, which must still have its value.
        SelftestFailure.Unless(
            await CountAsync(run, "limits/kk", stop) == 1 && (await ReadAsync(run, longest, stop)).Value.Span.SequenceEqual(value),
            $"a key that was refused is there, or has changed another one");
        var large = new byte[KvLimits.ValueBytesMax];
        run.Random.NextBytes(large);
        await SelftestRun.RepeatAsync(() => run.Client.PutAsync(run.Key("limits/large"), large, cancellationToken: stop).AsTask(), stop);
        SelftestFailure.Unless(
            (await ReadAsync(run, run.Key("limits/large"), stop)).Value.Span.SequenceEqual(large), $"a value of {large.Length} bytes is not what was put");
        await SelftestRun.RefusedAsync(
            "a value of one byte too many", "VALUE_TOO_LARGE",
            () => run.Client.PutAsync(run.Key("limits/large"), new byte[KvLimits.ValueBytesMax + 1], cancellationToken: stop).AsTask(), stop);
        SelftestFailure.Unless(
            (await ReadAsync(run, run.Key("limits/large"), stop)).Value.Length == large.Length, $"a value that was refused has replaced another one");
        await SelftestRun.RefusedAsync(
            "a write of one operation too many", "TOO_MANY_OPERATIONS",
            () => run.Client.WriteAsync(WriteOf(run, KvLimits.KeysMax + 1), cancellationToken: stop).AsTask(), stop);
        SelftestFailure.Unless(await CountAsync(run, "limits/many/", stop) == 0, $"a write that was refused has put keys");
        await SelftestRun.RepeatAsync(() => run.Client.WriteAsync(WriteOf(run, KvLimits.KeysMax), cancellationToken: stop).AsTask(), stop);
        var count = await CountAsync(run, "limits/many/", stop);
        SelftestFailure.Unless(count == KvLimits.KeysMax, $"a write of {KvLimits.KeysMax} puts made {count} keys");
    }

    /// <summary>Each kind of condition, when it holds and when it does not.</summary>
    public static async Task ConditionsAsync(SelftestRun run, CancellationToken stop)
    {
        var key = run.Key("condition");
        await ExpectAsync(run, key, "exists", KvCondition.Exists(), holds: false, stop);
        await ExpectAsync(run, key, "absent", KvCondition.Absent(), holds: true, stop);
        await ExpectAsync(run, key, "absent", KvCondition.Absent(), holds: false, stop);
        await ExpectAsync(run, key, "exists", KvCondition.Exists(), holds: true, stop);
        var read = await ReadAsync(run, key, stop);
        await ExpectAsync(run, key, "another etag", KvCondition.EtagEquals(read.Etag.Predecessor), holds: false, stop);
        await ExpectAsync(run, key, "its etag", KvCondition.EtagEquals(read.Etag), holds: true, stop);
        await ExpectAsync(run, key, "the etag before", KvCondition.EtagEquals(read.Etag), holds: false, stop);
        await ExpectAsync(run, key, "another value", KvCondition.ValueEquals("another"u8.ToArray()), holds: false, stop);
        await ExpectAsync(run, key, "its value", KvCondition.ValueEquals((await ReadAsync(run, key, stop)).Value), holds: true, stop);

        // A condition on one key of a write also decides about the others.
        var (present, absent) = (await ReadAsync(run, key, stop), run.Key("condition/absent"));
        await SelftestRun.RefusedAsync(
            "a write on a condition that does not hold", "CONDITION_FAILED", () => run.Client.WriteAsync(
                new KvWrite().If(KvCondition.Exists(absent)).Put(absent, key).Delete(key), cancellationToken: stop).AsTask(), stop);
        await SelftestRun.RefusedAsync(
            "a delete on a condition that does not hold", "CONDITION_FAILED",
            () => run.Client.DeleteAsync(key, KvCondition.EtagEquals(present.Etag.Predecessor), stop).AsTask(), stop);
        SelftestFailure.Unless((await ReadAsync(run, key, stop)).Etag == present.Etag && !(await ReadAsync(run, absent, stop)).Found, $"a change that was "
            + $"refused by a condition has changed a key");
    }

    /// <summary>Members are there once and in order, and an intersection has those that all sets have.</summary>
    public static async Task SetsAsync(SelftestRun run, CancellationToken stop)
    {
        var (even, third) = (run.Key("set/even"), run.Key("set/third"));
        run.Sets.AddRange([even, third]);
        // More than fit into a leaf, so that the set gets a tree of its own.
        foreach (var (key, step) in ((byte[], int)[])[(even, 2), (third, 3)])
        {
            var members = Numbers(step).OrderBy(_ => run.Random.Next()).ToList();
            foreach (var some in members.Chunk(200))
                await SelftestRun.RepeatAsync(() => run.Client.Sets.AddAsync(key, some, cancellationToken: stop).AsTask(), stop);
            var again = await SelftestRun.RepeatAsync(() => run.Client.Sets.AddAsync(key, members.Take(5), cancellationToken: stop).AsTask(), stop);
            SelftestFailure.Unless(again.Changed == 0, $"members that were there were added: {again.Changed}");
            var seen = await SelftestRun.RepeatAsync(() => run.Client.Sets.ScanAsync(key, cancellationToken: stop)
                .Select(static member => Convert.ToHexString(member.Span)).ToListAsync(stop).AsTask(), stop);
            SelftestFailure.Unless(seen.SequenceEqual(Numbers(step).Select(static member => Convert.ToHexString(member.Span))), $"a set of {members.Count} "
                + $"members has {seen.Count}, or another order");
        }
        var common = await SelftestRun.RepeatAsync(
            () => run.Client.Sets.IntersectAsync(new KvIntersection { Keys = [even, third], Limit = 10_000, FacetPrefixes = [run.Key("set/")] }, stop).AsTask(),
            stop);
        SelftestFailure.Unless(common.Members.Select(static member => Convert.ToHexString(member.Span)).SequenceEqual(Numbers(6)
            .Select(static member => Convert.ToHexString(member.Span))), $"an intersection has {common.Count} members instead of {Numbers(6).Count()}");
        SelftestFailure.Unless(common.Facets[0].Sets.All(facet => facet.Count == common.Count) && common.Facets[0].SetsFound == 2, $"the facets of an "
            + $"intersection have other counts than it has members");
        await SelftestRun.RepeatAsync(() => run.Client.Sets.RemoveAllAsync(even, cancellationToken: stop).AsTask(), stop);
        await SelftestRun.RepeatAsync(() => run.Client.Sets.RemoveAllAsync(third, cancellationToken: stop).AsTask(), stop);
        SelftestFailure.Unless(
            await SelftestRun.RepeatAsync(() => run.Client.Sets.CountAsync(even, cancellationToken: stop).AsTask(), stop) == 0,
            $"a set that was removed has members");

        static IEnumerable<KvKey> Numbers(int step) => Enumerable.Range(0, 3_000).Where(number => number % step == 0).Select(
            static number => (KvKey)number.ToString("d5", CultureInfo.InvariantCulture));
    }

    /// <summary>Keys that the shard numbers: each number once, without a gap, in the order of the changes.</summary>
    public static async Task SequenceAsync(SelftestRun run, CancellationToken stop)
    {
        var prefix = run.Key("sequence/");
        await Parallel.ForAsync(0, 100, stop, async (number, token) => await SelftestRun.RepeatAsync(
            () => run.Client.PutAsync(prefix, Text.ToBytes(number.ToString(CultureInfo.InvariantCulture)), new KvPutOptions { Sequence = true }, token)
                .AsTask(), token));
        var entries = await SelftestRun.RepeatAsync(() => run.Client.ScanAsync(new KvScan { Prefix = prefix }, stop).ToListAsync(stop).AsTask(), stop);
        SelftestFailure.Unless(entries.Count >= 100, $"100 puts with a sequence made {entries.Count} keys");
        foreach (var (index, entry) in entries.Index())
        {
            var expected = Text.ToBytes(string.Create(CultureInfo.InvariantCulture, $"{index + 1:d20}"));
            SelftestFailure.Unless(entry.Key.Span[prefix.Length..].SequenceEqual(expected.Span), $"key {index + 1} of a sequence does not have that number");
            SelftestFailure.Unless(index == 0 || entry.Etag > entries[index - 1].Etag, $"key {index + 1} of a sequence is older than the one before it");
        }
    }

    private static KvWrite WriteOf(SelftestRun run, int operations)
    {
        var write = new KvWrite();
        for (var number = 0; number < operations; number++)
            write.Put(run.Key("limits/many", number), default);
        return write;
    }

    private static async Task ExpectAsync(SelftestRun run, byte[] key, string what, KvCondition condition, bool holds, CancellationToken stop)
    {
        var before = await ReadAsync(run, key, stop);
        var value = Text.ToBytes(run.Random.Next().ToString(CultureInfo.InvariantCulture));
        var held = true;
        try
        {
            await SelftestRun.RepeatAsync(() => run.Client.PutAsync(key, value, condition, stop).AsTask(), stop);
        }
        catch (KvConditionFailedException)
        {
            held = false;
        }
        var after = await ReadAsync(run, key, stop);
        // A put of unknown outcome that is repeated finds its own change.
        var isApplied = after.Found && after.Value.Span.SequenceEqual(value.Span);
        SelftestFailure.Unless(held == holds || isApplied, $"a put on the condition '{what}' was expected to be {(holds ? "applied" : "refused")}, and it was "
            + $"{(held ? "answered" : "refused")}");
        SelftestFailure.Unless(isApplied == holds, $"a put on the condition '{what}' was {(held ? "answered" : "refused")}, and its value is "
            + $"{(isApplied ? "there" : "not there")}");
        SelftestFailure.Unless(isApplied || before.Etag == after.Etag, $"a put that was refused has changed an etag");
    }

    private static Task<GetResult> ReadAsync(SelftestRun run, byte[] key, CancellationToken stop) =>
        SelftestRun.RepeatAsync(() => run.Client.GetAsync(key, cancellationToken: stop).AsTask(), stop);

    private static Task<long> CountAsync(SelftestRun run, string prefix, CancellationToken stop) =>
        SelftestRun.RepeatAsync(() => run.Client.CountAsync(run.Key(prefix), cancellationToken: stop), stop);
}
