using System.Diagnostics;
using System.Globalization;
using KvCluster.Client;

namespace KvCluster.ClusterTests;

/// <summary>
/// A client process with many watches of one key, by the library. It prints "ready" when all have begun, "seen" when each has returned a value of a certain
/// length, and ends with its standard input.
/// </summary>
internal sealed class WatchersProcess : IAsyncDisposable
{
    private const string Command = "watchers";
    private const string Ready = "ready";
    private const string AllSeen = "seen";

    // All values together are gigabytes.
    private static readonly TimeSpan Limit = 3 * Eventually.Limit;

    private readonly Process _process;

    private WatchersProcess(Process process)
    {
        _process = process;
        Seen = SeesAsync();
    }

    public static byte[] Key { get; } = "big"u8.ToArray();

    public int Id => _process.Id;

    /// <summary>Ends when each watch has returned the value.</summary>
    public Task Seen { get; }

    /// <summary>Returns when all watches have begun.</summary>
    public static async Task<WatchersProcess> StartAsync(IReadOnlyList<string> endpoints, int watchers, int valueBytes)
    {
        string[] arguments = [typeof(WatchersProcess).Assembly.Location, Command, Text(watchers), Text(valueBytes), .. endpoints];
        var process = Process.Start(new ProcessStartInfo("dotnet", arguments) { RedirectStandardInput = true, RedirectStandardOutput = true })!;
        Assert.Equal(Ready, await process.StandardOutput.ReadLineAsync().WaitAsync(Limit));
        return new WatchersProcess(process);
    }

    /// <summary>The process itself.</summary>
    /// <returns>Its exit code, or null if the arguments are not its own.</returns>
    public static async Task<int?> TryRunAsync(string[] arguments)
    {
        if (arguments is not [Command, var watchers, var valueBytes, .. var endpoints])
            return null;
        await RunAsync(int.Parse(watchers, CultureInfo.InvariantCulture), int.Parse(valueBytes, CultureInfo.InvariantCulture), endpoints);
        return 0;
    }

    public async ValueTask DisposeAsync()
    {
        if (!_process.HasExited)
            _process.Kill();
        await _process.WaitForExitAsync();
        _process.Dispose();
    }

    private static async Task RunAsync(int watchers, int valueBytes, string[] endpoints)
    {
        await using var client = new KvClient(new KvClientOptions { Endpoints = endpoints, Timeout = Eventually.Limit });
        using var limit = new CancellationTokenSource(2 * Limit);
        var begun = 0;
        var watching = Enumerable.Range(0, watchers).Select(_ => WatchAsync()).ToArray();
        await Eventually.TrueAsync(() => Volatile.Read(ref begun) == watchers, "all watches have begun");
        Console.WriteLine(Ready);
        await Task.WhenAll(watching);
        Console.WriteLine(AllSeen);
        await Console.In.ReadToEndAsync();

        async Task WatchAsync()
        {
            var hasBegun = false;
            await foreach (var message in client.WatchAsync(new KvWatch { Prefix = Key, IsOneKey = true }, limit.Token))
            {
                if (!hasBegun)
                    Interlocked.Increment(ref begun);
                hasBegun = true;
                if (message.Events.Any(one => one.Value.Length == valueBytes))
                    return;
            }
        }
    }

    private static string Text(int number) => number.ToString(CultureInfo.InvariantCulture);

    private async Task SeesAsync() => Assert.Equal(AllSeen, await _process.StandardOutput.ReadLineAsync().WaitAsync(2 * Limit));
}
