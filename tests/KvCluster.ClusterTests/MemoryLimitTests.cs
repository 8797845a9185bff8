using System.Globalization;
using System.Text;
using KvCluster.Client;
using KvCluster.Processes;

namespace KvCluster.ClusterTests;

/// <summary>
/// Programs in a group with limited memory, as in a container. A node with its defaults in 320 MiB was ended by the kernel when it got work; now it says at
/// once what it needs, and works with that much.
/// </summary>
public sealed class MemoryLimitTests
{
    private const int Usage = 2;
    private const string JoinThenRun = "echo $$ > \"$0\" && exec \"$@\"";

    private const int Watchers = 3;
    private const int Readers = 2;
    private const int KeysAtOnce = 100;

    // 123 MB in small values and 192 MiB in large ones.
    private const int Writers = 8;
    private const int SmallOfAWriter = 240;
    private const int SmallBytes = 64_000;
    private const int LargeOfAWriter = 3;
    private const int LargeBytes = 8 << 20;

    private static readonly ReadOnlyMemory<byte> Prefix = "key/"u8.ToArray();
    private static readonly ReadOnlyMemory<byte> LastKey = "last"u8.ToArray();

    [LimitedMemoryTheory]
    [InlineData("kv-node", 320, "320 MiB, and it needs 384")]
    [InlineData("kv-router", 160, "160 MiB, and it needs 192")]
    public async Task Start_BelowWhatItNeeds_IsRefusedWithTheNumber(string program, int mebibytes, string expected)
    {
        using var folder = new TemporaryDirectory();
        using var limit = MemoryLimit.TryCreate((long)mebibytes << 20, out var reason);
        Assert.True(limit is not null, reason);
        string[] arguments = program == "kv-node"
            ? ["run",
                "--node", "1", "--data", Path.Combine(folder.Path, "data"), "--listen", "http://127.0.0.1:7401", "--coordinator", "etcd=http://127.0.0.1:1"]
            : ["run", "--listen", "http://127.0.0.1:7400", "--nodes", "http://127.0.0.1:1"];
        var (exitCode, output, error) = await Tools.RunAsync("/bin/sh", ["-c", JoinThenRun, limit.Processes, Tools.Built(program), .. arguments]);
        Assert.True(exitCode == Usage && error.Contains(expected, StringComparison.Ordinal), $"{exitCode}: {output} {error}");
        Assert.Empty(Directory.EnumerateFileSystemEntries(folder.Path));
    }

    /// <summary>
    /// Large and small values, scans, many values read at once, and watchers, all at once. The data, their journal and what is answered are several times the
    /// node's memory.
    /// </summary>
    [LimitedMemoryFact("etcd", "etcdctl")]
    [Trait("Turn", "4")]
    public async Task Node_WithDefaultsJustAboveWhatItNeeds_WorksUnderLoad()
    {
        const int mebibytes = 390;
        using var limit = MemoryLimit.TryCreate((long)mebibytes << 20, out var reason);
        Assert.True(limit is not null, reason);
        string[] joined = ["/bin/sh", "-c", JoinThenRun, limit.Processes];
        await using var cluster = await FaultCluster.StartAsync(nodes: 1, prepare: node => node.Wrapper = joined);
        Assert.Contains(cluster.Node(1).Id.ToString(CultureInfo.InvariantCulture), await File.ReadAllLinesAsync(limit.Processes));
        await using var client = new KvClient(new KvClientOptions { Endpoints = cluster.DirectEndpoints, Timeout = Eventually.Limit });
        using var time = new CancellationTokenSource(5 * Eventually.Limit);
        var watching = Task.WhenAll(Enumerable.Range(0, Watchers).Select(_ => WatchAsync(client, time.Token)));
        var writing = Task.WhenAll(Enumerable.Range(0, Writers).Select(writer => WriteAsync(client, writer)));
        var reading = Task.WhenAll(Enumerable.Range(0, Readers).Select(_ => ReadAsync(client, writing)));
        await writing;
        await reading;
        await client.PutAsync(LastKey, default);
        await watching;
        Assert.Equal(Writers * (SmallOfAWriter + LargeOfAWriter), await client.CountAsync(Prefix));
        Assert.Equal(0, limit.Kills);
        Assert.True(cluster.Node(1).IsRunning);
    }

    private static async Task WriteAsync(KvClient client, int writer)
    {
        for (var number = 0; number < SmallOfAWriter; number++)
        {
            await client.PutAsync(Key(writer, number), new byte[SmallBytes]);
            if (number % (SmallOfAWriter / LargeOfAWriter) == 0)
                await client.PutAsync(Key(writer, SmallOfAWriter + number), new byte[LargeBytes]);
        }
    }

    // Scans everything and reads many keys at once while there are writers, at least once.
    private static async Task ReadAsync(KvClient client, Task writing)
    {
        var many = Enumerable.Range(0, KeysAtOnce).Select(static number => (KvKey)Key(number % Writers, number / Writers)).ToArray();
        do
        {
            await foreach (var _ in client.ScanAsync(new KvScan { Prefix = Prefix }))
            {
                // What was read is not kept.
            }
            Assert.Equal(many.Length, (await client.GetManyAsync(many)).Count);
        }
        while (!writing.IsCompleted);
    }

    // Until the last key was put. A watcher that is further behind than the journal begins anew.
    private static async Task WatchAsync(KvClient client, CancellationToken cancellationToken)
    {
        while (true)
        {
            try
            {
                await foreach (var message in client.WatchAsync(new KvWatch { Initial = true }, cancellationToken))
                {
                    if (message.Events.Any(static one => one.Key.Span.SequenceEqual(LastKey.Span)))
                        return;
                }
            }
            catch (KvCompactedException)
            {
                // It has read too slowly.
            }
        }
    }

    private static byte[] Key(int writer, int number) => Encoding.UTF8.GetBytes(string.Create(CultureInfo.InvariantCulture, $"key/{writer:d2}/{number:d6}"));
}

/// <summary>A test that makes a group with limited memory, and runs external programs. Where that is not possible, it is skipped with the reason.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class LimitedMemoryFactAttribute : FactAttribute
{
    public LimitedMemoryFactAttribute(params string[] programs) => Skip = new ToolFactAttribute(programs).Skip ?? new LimitedMemoryTheoryAttribute().Skip;
}

/// <summary>A test that makes a group with limited memory. Where that is not possible, it is skipped with the reason.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class LimitedMemoryTheoryAttribute : TheoryAttribute
{
    public LimitedMemoryTheoryAttribute()
    {
        using var limit = MemoryLimit.TryCreate(1L << 30, out var reason);
        if (limit is null)
            Skip = $"no memory limit can be set here: {reason}";
    }
}
