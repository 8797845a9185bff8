using System.Diagnostics;
using System.Globalization;
using KvCluster.Cli.Bench;
using KvCluster.Client;

namespace KvCluster.Benchmarks.Clients;

/// <summary>
/// A program that makes one call: `KvCluster.Benchmarks first-call ENDPOINT` creates a client, gets a key, and prints how many milliseconds both took. Nothing
/// of the client has been compiled before. Not for people.
/// </summary>
internal static class FirstCallCommand
{
    /// <summary>The first argument.</summary>
    public const string Name = "first-call";

    public static async Task<int> RunAsync(string[] arguments)
    {
        if (arguments is not [Name, var endpoint])
            return 2;
        var started = Stopwatch.GetTimestamp();
        await using var client = new KvClient(endpoint);
        var answer = await client.GetAsync(BenchKeys.At(0));
        Console.WriteLine(Stopwatch.GetElapsedTime(started).TotalMilliseconds.ToString(CultureInfo.InvariantCulture));
        return answer.Found ? 0 : 1;
    }
}
