using KvCluster.Client;

namespace KvCluster.Tests.Client.Hostile;

/// <summary>A caller of a <see cref="HostileRun"/>, which makes one call after the other and remembers what it was told.</summary>
internal sealed class HostileCaller(HostileRun run, int number)
{
    private static readonly string[] Keys = ["a0", "a1", "c0", "h0", "h1", "j0", "s0", "s1", "t0"];
    private static readonly string[] Counters = ["a-count", "h-count", "s-count"];
    private static readonly string[] Prefixes = ["", "a", "h", "s"];
    private static readonly int[] TimeoutsMs = [60, 150, 400, 1_000, 2_500];

    // The last one may be of two shards.
    private static readonly (string First, string Second)[] Pairs = [("a0", "a1"), ("h0", "h1"), ("s0", "s1"), ("a0", "h0")];

    private readonly Dictionary<string, GetResult> _seen = [];
    private readonly List<Outcome> _outcomes = [];

    private enum Told
    {
        Applied,
        NotApplied,
        Unknown,
    }

    private Random Random => run.Random;

    private HostileModel Model => run.Model;

    public void Start() => run.Clock.After(Random.Next(200), Next);

    /// <summary>Compares what it was told of its changes with what became of them, also after that.</summary>
    public void Check()
    {
        foreach (var outcome in _outcomes)
        {
            var applied = Model.AppliedOf(outcome.Mark);
            var holds = outcome.Told switch
            {
                Told.Applied => applied.Count == 1 && applied[0].Etag == outcome.Etag && applied[0].Number == outcome.Number
                    && applied[0].Moment >= outcome.From && applied[0].Moment <= outcome.To,
                Told.NotApplied => applied.Count == 0,
                _ => applied.Count <= 1,
            };
            run.Unless(holds, () => $"caller {number} was told {outcome}, and it was applied: {string.Join("; ", applied)}");
        }
    }

    /// <summary>Reads everything, which must be as it is. To be called when nothing is wrong any more.</summary>
    public async Task ReadAllAsync(HostileOperation operation)
    {
        KvKey[] keys = [.. Keys.Concat(Counters).Select(static key => (KvKey)key)];
        var found = await run.Client.GetManyAsync(keys, new KvGetOptions { Timeout = operation.Timeout });
        for (var index = 0; index < keys.Length; index++)
            CheckRead(operation, keys[index].ToUtf8String(), found[index], operation.Began);
        var entries = new List<KvEntry>();
        await foreach (var entry in run.Client.ScanAsync(new KvScan { Timeout = operation.Timeout }))
            entries.Add(entry);
        CheckScan(operation, "", entries);
    }

    private void Next()
    {
        if (run.IsOver)
            return;
        var timeout = TimeSpan.FromMilliseconds(TimeoutsMs[Random.Next(TimeoutsMs.Length)]);
        var (key, counter, prefix) = (Any(Keys), Any(Counters), Any(Prefixes));
        (string What, Func<HostileOperation, Task> Make) call = Random.Next(14) switch
        {
            0 or 1 => ($"a put of {key}", operation => PutAsync(operation, key)),
            2 => ($"a tried put of {key}", operation => TryPutAsync(operation, key)),
            3 => ($"a delete of {key}", operation => DeleteAsync(operation, key)),
            4 or 5 => ($"an increment of {counter}", operation => IncrementAsync(operation, counter)),
            6 => ("a write", WriteAsync),
            7 or 8 => ($"a get of {key}", operation => GetAsync(operation, key)),
            9 => ($"a stale get of {key}", operation => StaleGetAsync(operation, key)),
            10 => ("a get of many", GetManyAsync),
            11 => ($"a count of {prefix}", operation => CountAsync(operation, prefix)),
            _ => ($"a scan of {prefix}", operation => ScanAsync(operation, prefix)),
        };
        run.Begin($"{call.What} by caller {number}", timeout, call.Make, () => run.Clock.After(Random.Next(60), Next));
    }

    private T Any<T>(IReadOnlyList<T> all) => all[Random.Next(all.Count)];

    private async Task PutAsync(HostileOperation operation, string key)
    {
        var condition = DrawCondition(key);
        var value = $"v{run.NextId()}";
        var options = new KvPutOptions { Condition = condition?.Message, Timeout = operation.Timeout, NoRetry = Random.Next(10) == 0 };
        await ChangeAsync(operation, value, condition, key, async client =>
            ((await client.PutAsync(key, value, options, operation.Token)).Etag, 0));
    }

    private async Task TryPutAsync(HostileOperation operation, string key)
    {
        if (DrawCondition(key) is not { } condition)
            return;
        var value = $"v{run.NextId()}";
        var options = new KvPutOptions { Condition = condition.Message, WithPresentValue = Random.Next(2) == 0, Timeout = operation.Timeout };
        await ChangeAsync(operation, value, condition, key, async client =>
        {
            var tried = await client.TryPutAsync(key, value, options, operation.Token);
            if (tried.Succeeded)
                return (tried.Result.Etag, 0);
            var present = new GetResult(tried.Failed.Found, tried.Failed.Value, tried.Failed.Etag, tried.Failed.Position);
            CheckRead(operation, key, present, operation.Began, withValue: options.WithPresentValue);
            throw new KvConditionFailedException("as it is said without an exception", tried.Failed.Index, tried.Failed.Position);
        });
    }

    private async Task IncrementAsync(HostileOperation operation, string key)
    {
        // What is added tells it from all others.
        var by = run.NextId();
        var options = new KvChangeOptions { Timeout = operation.Timeout };
        await ChangeAsync(operation, $"{by}", null, key, async client =>
        {
            var result = await client.IncrementAsync(key, by, options, operation.Token);
            return (result.Position.Etag, result.Number);
        });
    }

    private async Task WriteAsync(HostileOperation operation)
    {
        var (first, second) = Any(Pairs);
        var condition = DrawCondition(first, isNamed: true);
        var value = $"w{run.NextId()}";
        var write = new KvWrite().Put(first, value).Put(second, value);
        if (condition is not null)
            write.If(condition.Message);
        await ChangeAsync(operation, value, condition, first, async client =>
            ((await client.WriteAsync(write, new KvCallOptions { Timeout = operation.Timeout }, operation.Token)).Position.Etag, 0));
    }

    private async Task DeleteAsync(HostileOperation operation, string key)
    {
        if (!_seen.TryGetValue(key, out var seen))
            return;
        var condition = new Condition(KvCondition.EtagEquals(seen.Etag), state => state.Value is not null && state.Etag == seen.Etag);
        var options = new KvChangeOptions { Condition = condition.Message, Timeout = operation.Timeout };
        // It has no mark, so it is not counted.
        await ChangeAsync(operation, null, condition, key, async client =>
        {
            var result = await client.DeleteAsync(key, options, operation.Token);
            var deleted = Model.TimeOf(key, found: false, Etag.None, operation.Began, Model.NextMoment());
            run.Unless(result.Existed && deleted is not null, () => $"{operation}: it was told {result}, and the key was never absent meanwhile");
            return (result.Position.Etag, 0);
        });
    }

    private async Task ChangeAsync(
        HostileOperation operation, string? mark, Condition? condition, string key, Func<KvClient, Task<(Etag Etag, long Number)>> change)
    {
        var client = run.Client;
        var (told, etag, result) = (Told.NotApplied, Etag.None, 0L);
        try
        {
            (etag, result) = await change(client);
            told = Told.Applied;
            run.Tally.Applied++;
        }
        catch (KvConditionFailedException) when (condition is not null)
        {
            run.Tally.ConditionsFailed++;
            run.Unless(
                Model.Was(key, operation.Began, Model.NextMoment(), state => !condition!.Holds(state)), () => $"{operation}: its condition held all the time");
        }
        catch (KvOutcomeUnknownException)
        {
            told = Told.Unknown;
            run.Tally.Unknown++;
        }
        catch (Exception failure) when (failure is KvUnavailableException or KvShardsDifferException || IsOfClosed(failure, client))
        {
            run.Tally.NotApplied++;
        }
        catch (OperationCanceledException stopped) when (IsGivenUp(operation, stopped))
        {
            told = Told.Unknown;
            run.Tally.GivenUp++;
        }
        if (mark is not null)
            _outcomes.Add(new Outcome(mark, told, operation.Began, Model.NextMoment(), etag, result, operation.ToString()));
    }

    private async Task GetAsync(HostileOperation operation, string key)
    {
        var found = default(GetResult);
        var mode = Random.Next(2) == 0 ? KvReadMode.Leader : KvReadMode.Quorum;
        var options = new KvGetOptions { Read = mode, Timeout = operation.Timeout, NoRetry = Random.Next(10) == 0 };
        if (!await SucceedsAsync(operation, async client => found = await client.GetAsync(key, options, operation.Token)))
            return;
        CheckRead(operation, key, found, operation.Began);
        if (found.Found)
            _seen[key] = found;
        else
            _seen.Remove(key);
    }

    // Any state that there was before its end.
    private async Task StaleGetAsync(HostileOperation operation, string key)
    {
        var found = default(GetResult);
        var options = new KvGetOptions
        {
            Read = KvReadMode.Stale,
            HedgeAfter = Random.Next(2) == 0 ? TimeSpan.FromMilliseconds(1 + Random.Next(100)) : null,
            Timeout = operation.Timeout,
        };
        if (await SucceedsAsync(operation, async client => found = await client.GetAsync(key, options, operation.Token)))
            CheckRead(operation, key, found, from: 0);
    }

    private async Task GetManyAsync(HostileOperation operation)
    {
        KvKey[] keys = [.. Keys.Where(_ => Random.Next(2) == 0).Append("a0").Select(static key => (KvKey)key)];
        IReadOnlyList<GetResult> found = [];
        if (!await SucceedsAsync(
            operation, async client => found = await client.GetManyAsync(keys, new KvGetOptions { Timeout = operation.Timeout }, operation.Token)))
            return;
        var times = new Dictionary<uint, (long From, long To)>();
        for (var index = 0; index < keys.Length; index++)
        {
            var key = keys[index].ToUtf8String();
            if (CheckRead(operation, key, found[index], operation.Began) is not { } time || !found[index].Found)
                continue;
            // Keys of one shard are read at one moment. When those that exist were as they were found is certain.
            var shard = Model.RouteOf(key).Shard;
            var common = times.GetValueOrDefault(shard, (From: 0L, To: long.MaxValue));
            common = (Math.Max(common.From, time.From), Math.Min(common.To, time.To));
            run.Unless(common.From <= common.To, () => $"{operation}: what it found in shard {shard} was never there at one moment");
            times[shard] = common;
        }
    }

    private async Task CountAsync(HostileOperation operation, string prefix)
    {
        var count = 0L;
        if (!await SucceedsAsync(
            operation, async client => count = await client.CountAsync(prefix, new KvReadOptions { Timeout = operation.Timeout }, operation.Token)))
            return;
        var (from, to) = (operation.Began, Model.NextMoment());
        var keys = Model.Keys.Where(key => key.StartsWith(prefix, StringComparison.Ordinal)).ToList();
        var least = keys.Count(key => !Model.Was(key, from, to, static state => state.Value is null));
        var most = keys.Count(key => Model.Was(key, from, to, static state => state.Value is not null));
        run.Unless(count >= least && count <= most, () => $"{operation} counted {count} keys, and there were {least} to {most}");
    }

    private async Task ScanAsync(HostileOperation operation, string prefix)
    {
        var entries = new List<KvEntry>();
        var scan = new KvScan { Prefix = prefix, Timeout = operation.Timeout, OneSnapshot = Random.Next(4) == 0 };
        var isWhole = await SucceedsAsync(operation, async client =>
        {
            await using var reader = client.ScanAsync(scan, operation.Token).GetAsyncEnumerator(operation.Token);
            while (true)
            {
                operation.AllowTime();
                if (!await reader.MoveNextAsync())
                    return;
                entries.Add(reader.Current);
                if (Random.Next(20) != 0)
                    continue;
                operation.Rest();
                await run.PauseAsync(Random.Next(500), operation.Token);
            }
        });
        if (!isWhole)
            return;
        run.Tally.Scans++;
        CheckScan(operation, prefix, entries);
    }

    // Each entry was there at some moment, in order, and none is missing that was there all the time.
    private void CheckScan(HostileOperation operation, string prefix, List<KvEntry> entries)
    {
        var (from, to) = (operation.Began, Model.NextMoment());
        var last = "";
        foreach (var entry in entries)
        {
            var key = entry.Key.ToUtf8String();
            run.Unless(string.CompareOrdinal(key, last) > 0, () => $"{operation} returned {key} after {last}");
            CheckRead(operation, key, new GetResult(true, entry.Value, entry.Etag, default), from);
            last = key;
        }
        var found = entries.Select(static entry => entry.Key.ToUtf8String()).ToHashSet(StringComparer.Ordinal);
        foreach (var key in Model.Keys.Where(key => key.StartsWith(prefix, StringComparison.Ordinal) && !found.Contains(key)))
        {
            run.Unless(
                Model.Was(key, from, to, static state => state.Value is null), () => $"{operation} did not return {key}, which was there all the time");
        }
    }

    // The time in which what was read was so; null if it never was since a moment.
    private (long From, long To)? CheckRead(HostileOperation operation, string key, in GetResult read, long from, bool withValue = true)
    {
        var (found, etag, value) = (read.Found, read.Etag, read.Value.ToUtf8String());
        var time = Model.TimeOf(key, found, etag, from, Model.NextMoment());
        run.Unless(
            time is { } known && (!withValue || (Model.StateOf(key, known.From).Value ?? "") == value),
            () => $"{operation} was answered that {key} has the value '{value}' of {etag}, which it never had meanwhile");
        return time;
    }

    private async Task<bool> SucceedsAsync(HostileOperation operation, Func<KvClient, Task> read)
    {
        var client = run.Client;
        try
        {
            await read(client);
            run.Tally.Reads++;
            return true;
        }
        catch (Exception failure) when (failure is KvUnavailableException or KvSnapshotTooOldException || IsOfClosed(failure, client))
        {
            run.Tally.ReadsFailed++;
        }
        catch (OperationCanceledException stopped) when (IsGivenUp(operation, stopped))
        {
            run.Tally.GivenUp++;
        }
        return false;
    }

    private bool IsOfClosed(Exception failure, KvClient client) => failure is ObjectDisposedException && run.IsClosed(client);

    private static bool IsGivenUp(HostileOperation operation, OperationCanceledException stopped) =>
        operation.Token.IsCancellationRequested && stopped.CancellationToken == operation.Token;

    private Condition? DrawCondition(string key, bool isNamed = false)
    {
        KvKey named = isNamed ? key : default(KvKey);
        var has = _seen.TryGetValue(key, out var seen);
        var value = seen.Value.ToUtf8String();
        return Random.Next(4) switch
        {
            0 when has => new Condition(KvCondition.EtagEquals(seen.Etag, named), state => state.Value is not null && state.Etag == seen.Etag),
            1 when has => new Condition(KvCondition.ValueEquals(value, named), state => state.Value == value),
            2 => new Condition(KvCondition.Exists(named), static state => state.Value is not null),
            3 => new Condition(KvCondition.Absent(named), static state => state.Value is null),
            _ => null,
        };
    }

    private sealed record Condition(KvCondition Message, Func<KeyState, bool> Holds);

    /// <summary>What a caller was told of a change, and when.</summary>
    private sealed record Outcome(string Mark, Told Told, long From, long To, Etag Etag, long Number, string What);
}
