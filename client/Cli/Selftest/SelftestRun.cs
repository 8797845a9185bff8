using System.Diagnostics;
using System.Globalization;
using System.Text;
using KvCluster.Client;

namespace KvCluster.Cli.Selftest;

/// <summary>
/// What the checks of one `kv selftest` share: the client, keys that nobody else has, randomness from a seed, and calls that go on while leaders change. Any
/// thread, except <see cref="Random"/>.
/// </summary>
/// <param name="duration">How long each check with concurrent callers runs.</param>
internal sealed class SelftestRun(KvClient client, int seed, TimeSpan duration)
{
    /// <summary>How long a call is repeated while nobody serves it. Elections take a second or two, a restart of a node perhaps a minute.</summary>
    public static readonly TimeSpan Patience = TimeSpan.FromSeconds(90);

    /// <summary>The pause before a call is repeated, and between two looks at a condition.</summary>
    public static readonly TimeSpan RetryDelay = TimeSpan.FromMilliseconds(50);

    /// <summary>Made for this run, so that two runs never meet. It is not of the seed, because the keys of an earlier run may be there still.</summary>
    private readonly string _id = Guid.NewGuid().ToString("N")[..12];

    public KvClient Client => client;

    /// <summary>Of the seed.</summary>
    public Random Random { get; } = new(seed);

    /// <summary>The prefix of all keys of this run, except those beside borders of shards.</summary>
    public string Prefix => $"selftest/{_id}/";

    /// <summary>Prefixes of keys beside borders of shards, which are removed at the end too. A check adds them before it puts keys there.</summary>
    public List<byte[]> PrefixesElsewhere { get; } = [];

    /// <summary>Sets of this run, which are removed at the end. A delete of a range does not remove them.</summary>
    public List<byte[]> Sets { get; } = [];

    /// <summary>A name that no other run uses, for keys elsewhere.</summary>
    public byte[] Name => Encoding.UTF8.GetBytes($"selftest-{_id}/");

    /// <summary>A key of this run.</summary>
    public byte[] Key(string name) => Encoding.UTF8.GetBytes(Prefix + name);

    /// <summary>A numbered key of this run.</summary>
    public byte[] Key(string name, int number) => Key(string.Create(CultureInfo.InvariantCulture, $"{name}/{number:d6}"));

    /// <summary>Repeats a call while nobody serves it, and while its outcome is unknown: it must be harmless to repeat.</summary>
    public static async Task<T> RepeatAsync<T>(Func<Task<T>> call, CancellationToken stop)
    {
        for (var began = Stopwatch.GetTimestamp(); ;)
        {
            try
            {
                return await call();
            }
            catch (KvException e) when (e is KvUnavailableException or KvOutcomeUnknownException && Stopwatch.GetElapsedTime(began) < Patience)
            {
                await Task.Delay(RetryDelay, stop);
            }
        }
    }

    /// <summary>Makes a change once. False if it was certainly not made; null if that is unknown.</summary>
    public static async Task<bool?> TryAsync(Func<Task> change, CancellationToken stop)
    {
        try
        {
            await change();
            return true;
        }
        catch (KvOutcomeUnknownException)
        {
            return null;
        }
        catch (KvUnavailableException)
        {
            await Task.Delay(RetryDelay, stop);
            return false;
        }
    }

    /// <summary>Waits for a condition that becomes true by itself.</summary>
    public static async Task UntilAsync(Func<bool> condition, Func<string> otherwise, CancellationToken stop)
    {
        for (var began = Stopwatch.GetTimestamp(); !condition(); await Task.Delay(RetryDelay, stop))
        {
            if (Stopwatch.GetElapsedTime(began) > Patience)
                throw new SelftestFailure(otherwise());
        }
    }

    /// <summary>Runs callers side by side for the duration of a check, or one of several parts of it.</summary>
    public async Task ForAWhileAsync(int callers, Func<int, Random, Task> step, int parts = 1)
    {
        var seeds = Enumerable.Range(0, callers).Select(_ => Random.Next()).ToArray();
        var began = Stopwatch.GetTimestamp();
        await Task.WhenAll(Enumerable.Range(0, callers).Select(caller => Task.Run(async () =>
        {
            var random = new Random(seeds[caller]);
            do
                await step(caller, random);
            while (Stopwatch.GetElapsedTime(began) < duration / parts);
        })));
    }

    /// <summary>Expects a call to be refused.</summary>
    public static async Task RefusedAsync<T>(string what, string reason, Func<Task<T>> call, CancellationToken stop)
    {
        try
        {
            await RepeatAsync(call, stop);
        }
        catch (KvException refusal) when (refusal.Reason == reason && refusal.Outcome == ChangeOutcome.NotApplied)
        {
            return;
        }
        catch (KvException refusal)
        {
            throw new SelftestFailure($"{what}: {reason}, applied no, was expected, and it ended with {refusal.Reason}, {refusal.Outcome}");
        }
        throw new SelftestFailure($"{what}: {reason} was expected, and it succeeded");
    }
}

/// <summary>A check has found that the cluster does not do what it promises. The message is one line: what was expected and what was seen.</summary>
internal sealed class SelftestFailure(string message) : Exception(message)
{
    /// <summary>Fails unless a condition holds.</summary>
    public static void Unless(bool condition, string otherwise)
    {
        if (!condition)
            throw new SelftestFailure(otherwise);
    }
}
