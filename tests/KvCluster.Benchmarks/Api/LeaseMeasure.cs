using System.Diagnostics;
using Google.Protobuf;
using Grpc.Net.Client;
using KvCluster.Benchmarks.Cluster;
using KvCluster.Client;
using KvCluster.V1;

namespace KvCluster.Benchmarks.Api;

/// <summary>
/// What live sessions with a lifetime take from the servers: the CPU time of all their processes while nobody calls but to keep the sessions alive, beyond what
/// they take without sessions. A throughput with and without them would differ by less than two runs of it do.
/// </summary>
internal static class LeaseMeasure
{
    private const int Sessions = 100_000;
    private const int Callers = 256;

    /// <summary>As a caller with as many sessions would; the most is 10,000.</summary>
    private const int SessionsPerCall = 1_000;

    /// <summary>A session is kept alive three times in its lifetime, so that it outlives a call that fails.</summary>
    private const int KeptAlivePerLifetime = 3;
    private static readonly TimeSpan Lifetime = TimeSpan.FromSeconds(60);
    private static readonly ReadOnlyMemory<byte> Key = "lease"u8.ToArray();

    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(KvServers servers, bool quick, Action<string> progress, CancellationToken cancellation)
    {
        await using var client = new KvClient(servers.RouterAddress);
        using var channel = GrpcChannel.ForAddress(servers.LeaderAddress);
        var kv = new Kv.KvClient(channel);
        var runs = quick ? 1 : 3;
        var without = await PhaseAsync(() => Task.CompletedTask);
        var count = quick ? Sessions / 10 : Sessions;
        var began = Stopwatch.GetTimestamp();
        var ids = new ByteString[count];
        await Parallel.ForEachAsync(
            Enumerable.Range(0, count), new ParallelOptions { MaxDegreeOfParallelism = Callers, CancellationToken = cancellation }, async (number, token) =>
                ids[number] = ByteString.CopyFrom((await client.Sessions.OpenAsync(Key, Lifetime, cancellationToken: token)).Id.Span));
        var rate = count / Stopwatch.GetElapsedTime(began).TotalSeconds;
        progress($"{count:N0} sessions opened, {rate:N0}/s");
        var with = await PhaseAsync(KeepAliveAsync);
        var idle = BenchmarkRow.Of(ApiSuite.Name, "servers without sessions", "kvcluster", "% of the CPU", without);
        var busy = BenchmarkRow.Of(ApiSuite.Name, $"servers with {count:N0} sessions of {Lifetime.TotalSeconds:N0} s, kept alive every "
            + $"{Lifetime.TotalSeconds / KeptAlivePerLifetime:N0} s", "kvcluster", "% of the CPU", with);
        progress($"CPU without sessions {idle.Median:F2} %, with {count:N0} of them {busy.Median:F2} %");
        return [BenchmarkRow.Of(ApiSuite.Name, $"OpenSession with a lifetime, {Callers} callers", "kvcluster", "sessions/s", [rate]), idle, busy];

        async Task<List<double>> PhaseAsync(Func<Task> call)
        {
            // What came before is still being written and cleared away.
            _ = await BusyAsync(call);
            var parts = new List<double>();
            for (var run = 0; run < runs; run++)
                parts.Add(await BusyAsync(call));
            return parts;
        }

        // The part of all processors' time that the servers take in the time between two calls of a session.
        async Task<double> BusyAsync(Func<Task> call)
        {
            var before = (At: Stopwatch.GetTimestamp(), Cpu: ServerCpu.MicrosecondsOf(servers.Processes));
            await call();
            var rest = (Lifetime / KeptAlivePerLifetime) - Stopwatch.GetElapsedTime(before.At);
            await Task.Delay(rest > TimeSpan.Zero ? rest : TimeSpan.Zero, cancellation);
            return (ServerCpu.MicrosecondsOf(servers.Processes) - before.Cpu)
                / Stopwatch.GetElapsedTime(before.At).TotalMicroseconds / Environment.ProcessorCount * 100;
        }

        async Task KeepAliveAsync()
        {
            foreach (var some in ids.Chunk(SessionsPerCall))
            {
                var answer = await kv.KeepAliveAsync(
                    new KeepAliveRequest { Key = ByteString.CopyFrom(Key.Span), Sessions = { some } }, cancellationToken: cancellation);
                if (answer.LeftMs.Any(static left => left == 0))
                    throw new InvalidOperationException("A session that was kept alive has ended: the numbers would be of fewer.");
            }
        }
    }
}
